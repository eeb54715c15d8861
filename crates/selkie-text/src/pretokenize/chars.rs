//! Characters with the classes that pre-tokenizers ask about.

use unicode_properties::{GeneralCategory as Category, UnicodeGeneralCategory};

use crate::bytes::code_points;

/// A set of character classes. A character is in exactly one of the single classes, or in none of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Class(u8);

impl Class {
    /// None of the classes below: controls, formats, unassigned and private characters.
    pub(super) const OTHER: Self = Self(0);
    /// `\p{Lu}\p{Lt}`
    pub(super) const UPPER: Self = Self(1);
    /// `\p{Ll}`
    pub(super) const LOWER: Self = Self(2);
    /// `\p{Lm}\p{Lo}`: letters without case
    pub(super) const CASELESS: Self = Self(4);
    /// `\p{L}`
    pub(super) const LETTER: Self = Self(1 | 2 | 4);
    /// `\p{M}`
    pub(super) const MARK: Self = Self(8);
    /// `\p{N}`
    pub(super) const NUMBER: Self = Self(16);
    /// `\s`
    pub(super) const SPACE: Self = Self(32);
    /// `\p{P}`
    pub(super) const PUNCTUATION: Self = Self(64);
    /// `\p{S}`
    pub(super) const SYMBOL: Self = Self(128);

    /// What is in either set.
    pub(super) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the two sets share a class.
    pub(super) const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The class of a code point. Surrogates and what lies above U+10FFFF have none.
    fn of(code: u32) -> Self {
        const ASCII: [Class; 128] = ascii_classes();
        if let Some(&class) = ASCII.get(code as usize) {
            return class;
        }
        let Some(char) = char::from_u32(code) else { return Self::OTHER };
        if char.is_whitespace() {
            return Self::SPACE;
        }
        match char.general_category() {
            Category::UppercaseLetter | Category::TitlecaseLetter => Self::UPPER,
            Category::LowercaseLetter => Self::LOWER,
            Category::ModifierLetter | Category::OtherLetter => Self::CASELESS,
            Category::NonspacingMark | Category::SpacingMark | Category::EnclosingMark => Self::MARK,
            Category::DecimalNumber | Category::LetterNumber | Category::OtherNumber => Self::NUMBER,
            Category::ConnectorPunctuation
            | Category::DashPunctuation
            | Category::OpenPunctuation
            | Category::ClosePunctuation
            | Category::InitialPunctuation
            | Category::FinalPunctuation
            | Category::OtherPunctuation => Self::PUNCTUATION,
            Category::MathSymbol | Category::CurrencySymbol | Category::ModifierSymbol | Category::OtherSymbol => {
                Self::SYMBOL
            }
            _ => Self::OTHER,
        }
    }
}

/// The classes of ASCII, so that most text needs no search.
const fn ascii_classes() -> [Class; 128] {
    let mut table = [Class::OTHER; 128];
    let mut code = 0;
    while code < 128 {
        table[code] = match code as u8 {
            b'A'..=b'Z' => Class::UPPER,
            b'a'..=b'z' => Class::LOWER,
            b'0'..=b'9' => Class::NUMBER,
            b'\t'..=b'\r' | b' ' => Class::SPACE,
            b'$' | b'+' | b'<'..=b'>' | b'^' | b'`' | b'|' | b'~' => Class::SYMBOL,
            b'!'..=b'/' | b':'..=b'@' | b'['..=b'_' | b'{' | b'}' => Class::PUNCTUATION,
            _ => Class::OTHER,
        };
        code += 1;
    }
    table
}

/// One character of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Char {
    /// The code point.
    pub(super) code: u32,
    /// Its offset in the text, in bytes.
    pub(super) offset: u32,
    /// Its class.
    pub(super) class: Class,
}

impl Char {
    /// Whether the character's class is one of `classes`.
    pub(super) const fn is(self, classes: Class) -> bool {
        self.class.meets(classes)
    }

    /// `[\r\n]`
    pub(super) const fn is_newline(self) -> bool {
        self.code == '\r' as u32 || self.code == '\n' as u32
    }

    /// Whether the character is `char`.
    pub(super) const fn equals(self, char: char) -> bool {
        self.code == char as u32
    }
}

/// The characters of a repaired text.
pub(super) fn chars(text: &[u8]) -> Vec<Char> {
    let mut chars = Vec::with_capacity(text.len());
    chars.extend(code_points(text).map(|(offset, code)| Char { code, offset: offset as u32, class: Class::of(code) }));
    chars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_agrees_with_unicode() {
        for code in 0..128u8 {
            let (char, class) = (char::from(code), Class::of(u32::from(code)));
            assert_eq!(class == Class::SPACE, char.is_whitespace(), "{char:?}");
            assert_eq!(class.meets(Class::LETTER), char.is_alphabetic(), "{char:?}");
            assert_eq!(class == Class::NUMBER, char.is_numeric(), "{char:?}");
            let printable = char.is_ascii_graphic() && !char.is_ascii_alphanumeric();
            assert_eq!(class.meets(Class::PUNCTUATION.or(Class::SYMBOL)), printable, "{char:?}");
            if printable {
                let symbol = matches!(
                    char.general_category(),
                    Category::MathSymbol | Category::CurrencySymbol | Category::ModifierSymbol
                );
                assert_eq!(class == Class::SYMBOL, symbol, "{char:?}");
            }
        }
    }

    #[test]
    fn classes_beyond_ascii() {
        for (char, class) in [
            ('É', Class::UPPER),
            ('ǅ', Class::UPPER),
            ('ß', Class::LOWER),
            ('你', Class::CASELESS),
            ('ʰ', Class::CASELESS),
            ('\u{301}', Class::MARK),
            ('٣', Class::NUMBER),
            ('Ⅷ', Class::NUMBER),
            ('½', Class::NUMBER),
            ('\u{a0}', Class::SPACE),
            ('\u{85}', Class::SPACE),
            ('\u{200b}', Class::OTHER),
            ('。', Class::PUNCTUATION),
            ('€', Class::SYMBOL),
            ('\u{e000}', Class::OTHER),
        ] {
            assert_eq!(Class::of(u32::from(char)), class, "{char:?}");
        }
        assert_eq!(Class::of(0xd800), Class::OTHER);
    }
}
