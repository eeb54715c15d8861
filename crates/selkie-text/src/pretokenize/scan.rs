//! The regular expressions of published pre-tokenizers, written as scanners.
//!
//! Each scanner takes the characters from some position to the end of the text and says how many of them the expression
//! matches there. Scanners are exact, including what an expression finds by backtracking, and look at each character a
//! bounded number of times, which an expression engine does not promise.

use super::chars::{Char, Class};

/// How many characters at the start satisfy `test`.
pub(super) fn run(text: &[Char], test: impl Fn(Char) -> bool) -> usize {
    text.iter().position(|&char| !test(char)).unwrap_or(text.len())
}

/// Whether the first character exists and satisfies `test`.
fn starts(text: &[Char], test: impl Fn(Char) -> bool) -> bool {
    text.first().is_some_and(|&char| test(char))
}

/// `'s|'t|'re|'ve|'m|'ll|'d`, in any case if `any_case`. Zero if there is none.
fn contraction(text: &[Char], any_case: bool) -> usize {
    let lower = |char: &Char| match char.code {
        // What `(?i)s` also matches.
        0x17f if any_case => u32::from('s'),
        code if any_case && code < 128 => u32::from((code as u8).to_ascii_lowercase()),
        code => code,
    };
    let [quote, first, rest @ ..] = text else { return 0 };
    if !quote.equals('\'') {
        return 0;
    }
    let is = |code: u32, char: char| code == u32::from(char);
    let first = lower(first);
    if "stmd".chars().any(|char| is(first, char)) {
        return 2;
    }
    let second = rest.first().map_or(0, lower);
    let pairs = [('r', 'e'), ('v', 'e'), ('l', 'l')];
    if pairs.iter().any(|&(a, b)| is(first, a) && is(second, b)) { 3 } else { 0 }
}

/// `\s+(?!\S)|\s+`: a run of spaces, without its last one where a word follows (that space belongs to the word).
fn spaces(text: &[Char]) -> usize {
    let length = run(text, |char| char.is(Class::SPACE));
    if length > 1 && length < text.len() { length - 1 } else { length }
}

/// `\s*[\r\n]+|\s+(?!\S)|\s+`: a run of spaces up to its last line end, or as [`spaces`] does.
fn lines_and_spaces(text: &[Char]) -> usize {
    let length = run(text, |char| char.is(Class::SPACE));
    match text[..length].iter().rposition(|char| char.is_newline()) {
        Some(last) => last + 1,
        None => spaces(text),
    }
}

/// GPT-2: `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
pub(super) fn gpt2(text: &[Char]) -> usize {
    let contraction = contraction(text, false);
    if contraction > 0 {
        return contraction;
    }
    let lead = usize::from(starts(text, |char| char.equals(' ')));
    let word = &text[lead..];
    let length = match word.first().map(|char| char.class) {
        Some(class) if class.meets(Class::LETTER) => run(word, |char| char.is(Class::LETTER)),
        Some(Class::NUMBER) => run(word, |char| char.is(Class::NUMBER)),
        Some(class) if class != Class::SPACE => {
            run(word, |char| !char.is(Class::LETTER.or(Class::NUMBER).or(Class::SPACE)))
        }
        _ => 0,
    };
    if length > 0 { lead + length } else { spaces(text) }
}

/// The differences between descendants of the expression that came with cl100k.
#[derive(Clone, Copy)]
pub(super) struct Words {
    /// `[\p{L}\p{M}]` where it is `\p{L}` elsewhere (and `\p{M}` is no punctuation).
    pub(super) marks: bool,
    /// The word's shape follows its case, as in o200k; else a word is a run of letters.
    pub(super) cased: bool,
    /// Where English contractions are matched.
    pub(super) contractions: Contractions,
    /// `\p{N}{1,digits}`
    pub(super) digits: usize,
    /// `[\r\n/]*` after punctuation where it is `[\r\n]*` elsewhere.
    pub(super) slash: bool,
}

/// Where English contractions are matched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Contractions {
    /// Nowhere.
    No,
    /// As a piece of their own, before anything else.
    Apart,
    /// At the end of a word.
    Attached,
}

/// The family of `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
pub(super) fn words(rules: &Words, text: &[Char]) -> usize {
    if rules.contractions == Contractions::Apart {
        let contraction = contraction(text, true);
        if contraction > 0 {
            return contraction;
        }
    }
    let word = if rules.cased { cased_word(rules, text) } else { plain_word(rules, text) };
    if word > 0 {
        return word;
    }
    let digits = run(&text[..text.len().min(rules.digits)], |char| char.is(Class::NUMBER));
    if digits > 0 {
        return digits;
    }
    let inside = if rules.marks { Class::LETTER.or(Class::MARK) } else { Class::LETTER };
    let outside = inside.or(Class::NUMBER).or(Class::SPACE);
    let lead = usize::from(starts(text, |char| char.equals(' ')));
    let length = run(&text[lead..], |char| !char.is(outside));
    if length > 0 {
        let end = lead + length;
        return end + run(&text[end..], |char| char.is_newline() || rules.slash && char.equals('/'));
    }
    lines_and_spaces(text)
}

/// `[^\r\n\p{L}\p{N}]?\p{L}+`
fn plain_word(rules: &Words, text: &[Char]) -> usize {
    let letters = if rules.marks { Class::LETTER.or(Class::MARK) } else { Class::LETTER };
    let length = |text: &[Char]| run(text, |char| char.is(letters));
    if word_lead(text) {
        match length(&text[1..]) {
            0 => length(text),
            rest => 1 + rest,
        }
    } else {
        length(text)
    }
}

/// Whether the text starts with `[^\r\n\p{L}\p{N}]`.
fn word_lead(text: &[Char]) -> bool {
    starts(text, |char| !char.is_newline() && !char.is(Class::LETTER.or(Class::NUMBER)))
}

/// `[^\r\n\p{L}\p{N}]?U*L+C?|[^\r\n\p{L}\p{N}]?U+L*C?` where U is `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`, L is
/// `[\p{Ll}\p{Lm}\p{Lo}\p{M}]` and C a contraction: words split before capitals.
fn cased_word(rules: &Words, text: &[Char]) -> usize {
    const UPPER: Class = Class::UPPER.or(Class::CASELESS).or(Class::MARK);
    const LOWER: Class = Class::LOWER.or(Class::CASELESS).or(Class::MARK);
    let ends_lower = |text: &[Char]| {
        let upper = run(text, |char| char.is(UPPER));
        let lower = run(&text[upper..], |char| char.is(LOWER));
        if lower > 0 {
            return upper + lower;
        }
        // `U*` has taken too much: it gives back up to the last character that is in both classes.
        text[..upper].iter().rposition(|char| char.is(LOWER)).map_or(0, |at| at + 1)
    };
    let starts_upper = |text: &[Char]| {
        let upper = run(text, |char| char.is(UPPER));
        if upper > 0 { upper + run(&text[upper..], |char| char.is(LOWER)) } else { 0 }
    };
    let led = |shape: &dyn Fn(&[Char]) -> usize| match word_lead(text).then(|| shape(&text[1..])) {
        Some(length) if length > 0 => 1 + length,
        _ => shape(text),
    };
    let mut end = led(&ends_lower);
    if end == 0 {
        end = led(&starts_upper);
    }
    if end > 0 && rules.contractions == Contractions::Attached {
        end += contraction(&text[end..], true);
    }
    end
}

/// DeepSeek 3, its last expression: ``[!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+``.
/// Zero where it matches nothing (numbers, which come apart earlier, and controls).
pub(super) fn deepseek3(text: &[Char]) -> usize {
    const WORD: Class = Class::LETTER.or(Class::MARK);
    const MARKS: Class = Class::PUNCTUATION.or(Class::SYMBOL);
    let ascii = |char: Char, test: fn(&char) -> bool| char::from_u32(char.code).is_some_and(|char| test(&char));
    if starts(text, |char| ascii(char, char::is_ascii_punctuation)) {
        let length = run(&text[1..], |char| ascii(char, char::is_ascii_alphabetic));
        if length > 0 {
            return 1 + length;
        }
    }
    let lead = starts(text, |char| !char.is_newline() && !char.is(Class::LETTER.or(MARKS)));
    let length = if lead { run(&text[1..], |char| char.is(WORD)) } else { 0 };
    if length > 0 {
        return 1 + length;
    }
    let length = run(text, |char| char.is(WORD));
    if length > 0 {
        return length;
    }
    let lead = usize::from(starts(text, |char| char.equals(' ')));
    let length = run(&text[lead..], |char| char.is(MARKS));
    if length > 0 {
        let end = lead + length;
        return end + run(&text[end..], Char::is_newline);
    }
    lines_and_spaces(text)
}
