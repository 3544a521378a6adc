"""Blobs in any bucket that speaks S3."""
