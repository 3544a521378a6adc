"""Swear words by language, in lower case. An operator's own list takes their place (PROFANITY_FILE)."""

from collections.abc import Mapping

WORDS: Mapping[str, str] = {
    "en": "arse arsehole ass asses asshole assholes bastard bastards bitch bitches bitching bloody bollocks bugger "
    "bullshit cock cocks cocksucker crap cunt cunts damn damned dick dickhead dicks fuck fucked fucker fuckers fucking "
    "fuckin fucks goddamn goddammit motherfucker motherfuckers motherfucking piss pissed prick pricks pussy shit "
    "shits shitted shitting shitty slut sluts tits twat twats wank wanker wankers whore whores",
    "es": "cabrón cabrones cabrona carajo chingar chingada coño cojones culo gilipollas hostia joder jodido jodida "
    "maricón mierda pendejo pendeja pinche polla puta putas puto putos verga",
    "fr": "bordel chiasse chier connard connards connasse conne couille couilles cul encule enculé enculés foutre "
    "merde merdes niquer nique pute putes putain salaud salauds salope salopes",
    "de": "arsch ärsche arschloch arschlöcher fick ficken ficker fotze hure huren hurensohn kacke miststück nutte "
    "nutten pisse scheiß scheiße scheißen scheisse schlampe schlampen schwanz verfickt verpiss wichser",
    "it": "cazzo cazzi coglione coglioni cornuto cornuti fanculo figa fottere fottuto merda minchia puttana puttane "
    "stronza stronzo stronzi stronzata troia vaffanculo",
    "pt": "bosta buceta cacete caralho corno cu foda foder fodido fodida merda porra puta putas puto viado",
    "nl": "eikel flikker godverdomme hoer hoeren kak klootzak klootzakken kut kutten lul lullen neuken pik schijt slet "
    "sletten teef tering verdomme",
}

_SETS = {language: frozenset(words.split()) for language, words in WORDS.items()}


def swear_words(language: str | None) -> frozenset[str]:
    """Return the swear words of a language, and English ones for one that has no list."""
    return _SETS.get(language or "en", _SETS["en"])
