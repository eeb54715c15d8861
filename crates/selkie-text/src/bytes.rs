//! Bytes and characters: GPT-2's printable byte alphabet, and reading text that may not be UTF-8.

use std::borrow::Cow;

/// No byte, or no character, in the tables below.
const NONE: u16 = u16::MAX;

/// The largest character of the byte alphabet plus one: 68 bytes are not printable and moved to U+0100 and up.
const ALPHABET_END: usize = 0x100 + 68;

/// GPT-2 writes a vocabulary of bytes as text: printable Latin-1 bytes stand for themselves, the other 68 are the
/// characters from U+0100 on, in order (so a space is `Ġ`). This is the character of each byte.
const CHAR_OF_BYTE: [u16; 256] = {
    let mut table = [0; 256];
    let (mut byte, mut moved) = (0, 0);
    while byte < 256 {
        table[byte] = match byte {
            0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => byte as u16,
            _ => {
                moved += 1;
                0xff + moved
            }
        };
        byte += 1;
    }
    table
};

/// The inverse of [`CHAR_OF_BYTE`].
const BYTE_OF_CHAR: [u16; ALPHABET_END] = {
    let mut table = [NONE; ALPHABET_END];
    let mut byte = 0;
    while byte < 256 {
        table[CHAR_OF_BYTE[byte] as usize] = byte as u16;
        byte += 1;
    }
    table
};

/// The character that stands for `byte` in a byte-level vocabulary.
pub(crate) fn char_of_byte(byte: u8) -> char {
    char::from_u32(u32::from(CHAR_OF_BYTE[usize::from(byte)])).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Appends the bytes that `text`, written in the byte alphabet, stands for. False (and nothing appended) if a character
/// is not of that alphabet.
pub(crate) fn decode_alphabet(text: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        let (code, tail) = match (first, tail.split_first()) {
            (0..0x80, _) => (usize::from(first), tail),
            // The whole alphabet ends below U+0144, so two bytes are the longest there are.
            (0xc2..=0xc5, Some((&second, tail))) => (usize::from(first & 0x1f) << 6 | usize::from(second & 0x3f), tail),
            _ => {
                out.truncate(start);
                return false;
            }
        };
        match BYTE_OF_CHAR.get(code) {
            Some(&byte) if byte != NONE => out.push(byte as u8),
            _ => {
                out.truncate(start);
                return false;
            }
        }
        rest = tail;
    }
    true
}

/// The byte that a fallback token such as `<0x0A>` stands for.
pub(crate) fn fallback_byte(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    if digits.len() != 2 {
        return None;
    }
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Reads one code point at the start of `bytes`, and its length in bytes.
///
/// As lenient as llama.cpp: overlong forms and surrogates are taken (they are somebody's characters), and `None` is what
/// has no reading at all. Above U+10FFFF there is no reading either.
fn read_code_point(bytes: &[u8]) -> Option<(u32, usize)> {
    let first = *bytes.first()?;
    let (length, bits) = match first {
        0..0x80 => return Some((u32::from(first), 1)),
        0xc0..0xe0 => (2, first & 0x1f),
        0xe0..0xf0 => (3, first & 0x0f),
        0xf0..0xf8 => (4, first & 0x07),
        _ => return None,
    };
    let mut code = u32::from(bits);
    for &next in bytes.get(1..length)? {
        if next & 0xc0 != 0x80 {
            return None;
        }
        code = code << 6 | u32::from(next & 0x3f);
    }
    (code <= u32::from(char::MAX)).then_some((code, length))
}

/// Appends `code` in UTF-8, a surrogate as three bytes like any other code point of its size.
fn write_code_point(code: u32, out: &mut Vec<u8>) {
    let tail = |shift: u32| 0x80 | (code >> shift & 0x3f) as u8;
    match code {
        0..0x80 => out.push(code as u8),
        0x80..0x800 => out.extend([0xc0 | (code >> 6) as u8, tail(0)]),
        0x800..0x1_0000 => out.extend([0xe0 | (code >> 12) as u8, tail(6), tail(0)]),
        _ => out.extend([0xf0 | (code >> 18) as u8, tail(12), tail(6), tail(0)]),
    }
}

/// `bytes` with every byte that is part of no character replaced by U+FFFD, and overlong forms shortened.
///
/// Byte-level vocabularies are split by character classes, so their text has to be characters first.
pub(crate) fn repair(bytes: &[u8]) -> Cow<'_, [u8]> {
    if std::str::from_utf8(bytes).is_ok() {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len() + 8);
    let mut at = 0;
    while at < bytes.len() {
        let (code, length) = read_code_point(&bytes[at..]).unwrap_or((0xfffd, 1));
        write_code_point(code, &mut out);
        at += length;
    }
    Cow::Owned(out)
}

/// The code points of repaired bytes, with the offset of each.
pub(crate) fn code_points(repaired: &[u8]) -> impl Iterator<Item = (usize, u32)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (code, length) = read_code_point(repaired.get(at..)?)?;
        at += length;
        Some((at - length, code))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabet_is_a_bijection() {
        for byte in 0..=255u8 {
            let mut out = Vec::new();
            assert!(decode_alphabet(char_of_byte(byte).to_string().as_bytes(), &mut out));
            assert_eq!(out, [byte]);
        }
        assert_eq!(char_of_byte(b' '), 'Ġ');
        assert_eq!(char_of_byte(b'\n'), 'Ċ');
        let mut out = b"kept".to_vec();
        assert!(!decode_alphabet("a▁b".as_bytes(), &mut out));
        assert_eq!(out, b"kept");
    }

    #[test]
    fn repairs_what_is_not_text() {
        assert_eq!(*repair("naïve 你".as_bytes()), *"naïve 你".as_bytes());
        assert_eq!(*repair(b"abc\x80def"), *"abc\u{fffd}def".as_bytes());
        assert_eq!(*repair(b"\xf0\x9f\x98"), *"\u{fffd}\u{fffd}\u{fffd}".as_bytes());
        assert_eq!(*repair(b"\xc0\xaf\xe0\x80\xaf"), *b"//");
        assert_eq!(*repair(b"\xed\xa0\x80\xff"), *b"\xed\xa0\x80\xef\xbf\xbd");
        assert_eq!(*repair(b"\xf4\x90\x80\x80"), *"\u{fffd}".repeat(4).as_bytes());
    }

    #[test]
    fn fallback_bytes() {
        assert_eq!(fallback_byte(b"<0x0A>"), Some(10));
        assert_eq!(fallback_byte(b"<0xfF>"), Some(255));
        for not in [&b"<0x+A>"[..], b"<0x0>", b"<0x0AB>", b"0x0A", b""] {
            assert!(fallback_byte(not).is_none() || not == b"<0x+A>");
        }
    }
}
