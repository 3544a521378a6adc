"""Writes the text of a transcript as a Word document (Office Open XML, ECMA-376), which every word processor opens.

python-docx would bring lxml, 20 MB of native code, for the four small files that this needs.
"""

import io
import zipfile
from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from pipeline.documents.paragraphs import Paragraph, paragraphs_of
from pipeline.language_profiles import reads_right_to_left
from pipeline.words import Segment, join_words

MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"

_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_SCHEMAS = "http://schemas.openxmlformats.org"
_MAIN = "application/vnd.openxmlformats-officedocument.wordprocessingml"
_CONTENT_TYPES = (
    f'{_HEAD}<Types xmlns="{_SCHEMAS}/package/2006/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    f'<Override PartName="/word/document.xml" ContentType="{_MAIN}.document.main+xml"/>'
    f'<Override PartName="/word/styles.xml" ContentType="{_MAIN}.styles+xml"/></Types>'
)
_RELATION = f"{_SCHEMAS}/officeDocument/2006/relationships"
_PACKAGE_RELATIONS = (
    f'{_HEAD}<Relationships xmlns="{_SCHEMAS}/package/2006/relationships">'
    f'<Relationship Id="rId1" Type="{_RELATION}/officeDocument" Target="word/document.xml"/></Relationships>'
)
_DOCUMENT_RELATIONS = (
    f'{_HEAD}<Relationships xmlns="{_SCHEMAS}/package/2006/relationships">'
    f'<Relationship Id="rId1" Type="{_RELATION}/styles" Target="styles.xml"/></Relationships>'
)
_NAMESPACE = f'xmlns:w="{_SCHEMAS}/wordprocessingml/2006/main"'


def docx(segments: Sequence[Segment], *, language: str | None = None) -> bytes:
    """Return the words as paragraphs, each with its speaker if that is known. The same words make the same bytes.

    *language*: of the text, as an ISO 639 code, for the spelling checks of word processors.
    """
    found = paragraphs_of(segments)
    body = "".join(_paragraph(one, found[at - 1].speaker if at else None) for at, one in enumerate(found))
    document = f"{_HEAD}<w:document {_NAMESPACE}><w:body>{body or '<w:p/>'}</w:body></w:document>"
    parts = {
        "[Content_Types].xml": _CONTENT_TYPES,
        "_rels/.rels": _PACKAGE_RELATIONS,
        "word/document.xml": document,
        "word/_rels/document.xml.rels": _DOCUMENT_RELATIONS,
        "word/styles.xml": _styles(language),
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as package:
        for name, text in parts.items():
            package.writestr(zipfile.ZipInfo(name), text.encode(), zipfile.ZIP_DEFLATED)
    return file.getvalue()


def _paragraph(paragraph: Paragraph, before: str | None) -> str:
    """Return a paragraph. The speaker's name begins it, unless the one *before* it has the same speaker."""
    text = join_words(paragraph.words)
    right = reads_right_to_left(text)
    name = paragraph.speaker
    label = "" if name is None or name == before else _run(f"{name}: ", "<w:b/><w:bCs/>", right=right)
    return f"<w:p>{'<w:pPr><w:bidi/></w:pPr>' if right else ''}{label}{_run(text, '', right=right)}</w:p>"


def _run(text: str, look: str, *, right: bool) -> str:
    """Return a piece of text. Signs that XML does not allow are left out."""
    shown = "".join(sign for sign in text if sign >= " " and sign not in "\ufffe\uffff")
    look += "<w:rtl/>" if right else ""
    return f'<w:r>{f"<w:rPr>{look}</w:rPr>" if look else ""}<w:t xml:space="preserve">{escape(shown)}</w:t></w:r>'


def _styles(language: str | None) -> str:
    name = quoteattr(language or "en")
    return (
        f'{_HEAD}<w:styles {_NAMESPACE}><w:docDefaults><w:rPrDefault><w:rPr><w:sz w:val="24"/><w:szCs w:val="24"/>'
        f"<w:lang w:val={name} w:bidi={name}/></w:rPr></w:rPrDefault><w:pPrDefault><w:pPr>"
        '<w:spacing w:after="160" w:line="276" w:lineRule="auto"/></w:pPr></w:pPrDefault></w:docDefaults>'
        '<w:style w:type="paragraph" w:default="1" w:styleId="Normal"><w:name w:val="Normal"/></w:style></w:styles>'
    )
