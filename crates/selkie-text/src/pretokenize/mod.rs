//! Pre-tokenizers: splitting a text into the pieces inside which byte pairs are merged.
//!
//! GGUF names a pre-tokenizer in `tokenizer.ggml.pre`. Each is a list of steps; a step cuts every piece that the steps
//! before it left, and what a step does not match stays a piece of its own.

mod chars;
mod scan;

use std::ops::Range;

use chars::{Char, Class};
use scan::{Contractions, Words};

/// One cut of every piece.
#[derive(Clone, Copy)]
enum Step {
    /// A scanner that says how many characters it matches, zero for none.
    Scan(fn(&[Char]) -> usize),
    /// The family of cl100k.
    Words(Words),
}

/// A pre-tokenizer with what else its name implies about a model.
#[derive(Clone, Copy)]
pub(crate) struct PreTokenizer {
    steps: &'static [Step],
    /// A piece that is a token as a whole is taken without merging.
    pub(crate) whole_words: bool,
    /// Whether texts get the model's first token unless the file says otherwise.
    pub(crate) add_bos: bool,
}

/// cl100k with numbers of up to three digits, as in Llama 3.
const CL100K: Words = Words { marks: false, cased: false, contractions: Contractions::Apart, digits: 3, slash: false };

const GPT2: Step = Step::Scan(scan::gpt2);
const EACH_DIGIT: Step = Step::Scan(|text| scan::run(&text[..1], |char| char.is(Class::NUMBER)));
const THREE_DIGITS: Step = Step::Scan(|text| scan::run(&text[..text.len().min(3)], |char| char.is(Class::NUMBER)));
const ALL_DIGITS: Step = Step::Scan(|text| scan::run(text, |char| char.is(Class::NUMBER)));
/// `[0-9][0-9][0-9]`
const EXACTLY_THREE_ASCII_DIGITS: Step = Step::Scan(|text| {
    let digit = |char: Char| (u32::from('0')..=u32::from('9')).contains(&char.code);
    if scan::run(&text[..text.len().min(3)], digit) == 3 { 3 } else { 0 }
});
/// `[\p{P}\$\+<=>\^~\|]+`
const PUNCTUATION: Step =
    Step::Scan(|text| scan::run(text, |char| char.is(Class::PUNCTUATION) || one_of(char, "$+<=>^~|")));
/// ``[\p{P}\$\+<=>\^~\|`]+``
const PUNCTUATION_AND_BACKTICK: Step =
    Step::Scan(|text| scan::run(text, |char| char.is(Class::PUNCTUATION) || one_of(char, "$+<=>^~|`")));
/// ` ?[^(\s|.,!?…。，、।۔،)]+`
const BLOOM: Step = Step::Scan(|text| {
    let inside = |char: Char| !char.is(Class::SPACE) && !one_of(char, "(|.,!?…。，、।۔،)");
    led(text, |char| char.equals(' '), inside)
});
/// `[\r\n]`
const EACH_NEWLINE: Step = Step::Scan(|text| scan::run(&text[..1], Char::is_newline));
/// `\s?\p{L}+`
const LED_LETTERS: Step = Step::Scan(|text| led(text, |char| char.is(Class::SPACE), |char| char.is(Class::LETTER)));
/// `\s?\p{P}+`
const LED_PUNCTUATION: Step =
    Step::Scan(|text| led(text, |char| char.is(Class::SPACE), |char| char.is(Class::PUNCTUATION)));
/// `[一-龥ࠀ-一가-퟿]+`
const DEEPSEEK_CJK: Step =
    Step::Scan(|text| scan::run(text, |char| matches!(char.code, 0x800..=0x9fa5 | 0xac00..=0xd7ff)));
/// `[一-龥぀-ゟ゠-ヿ]+`
const CJK: Step = Step::Scan(|text| scan::run(text, |char| matches!(char.code, 0x4e00..=0x9fa5 | 0x3040..=0x30ff)));

/// `lead?inside+`
fn led(text: &[Char], lead: fn(Char) -> bool, inside: impl Fn(Char) -> bool) -> usize {
    if text.first().is_some_and(|&char| lead(char)) {
        let length = scan::run(&text[1..], &inside);
        if length > 0 {
            return 1 + length;
        }
    }
    scan::run(text, inside)
}

/// Whether the character is one of `set`.
fn one_of(char: Char, set: &str) -> bool {
    set.chars().any(|other| char.equals(other))
}

impl PreTokenizer {
    /// The pre-tokenizer for files that name none, or one that is not known: the one that llama.cpp uses as default.
    pub(crate) const DEFAULT: Self = Self::new(&[PUNCTUATION, GPT2, ALL_DIGITS, EXACTLY_THREE_ASCII_DIGITS]);

    const fn new(steps: &'static [Step]) -> Self {
        Self { steps, whole_words: false, add_bos: false }
    }

    const fn whole_words(self) -> Self {
        Self { whole_words: true, ..self }
    }

    const fn add_bos(self) -> Self {
        Self { add_bos: true, ..self }
    }

    /// The pre-tokenizer of this name, as GGUF writes it.
    pub(crate) fn named(name: &str) -> Option<Self> {
        const LLAMA3: &[Step] = &[Step::Words(CL100K)];
        const QWEN2: &[Step] = &[Step::Words(Words { digits: 1, ..CL100K })];
        const QWEN35: &[Step] = &[Step::Words(Words { digits: 1, marks: true, ..CL100K })];
        const O200K: Words = Words { cased: true, contractions: Contractions::Attached, slash: true, ..CL100K };
        const TEKKEN: Words = Words { contractions: Contractions::No, digits: 1, ..O200K };
        Some(match name {
            "default" => Self::DEFAULT,
            "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2"
            | "jina-v5-nano" => Self::new(LLAMA3).whole_words().add_bos(),
            "smollm3" | "dbrx" | "smaug-bpe" | "chatglm-bpe" => Self::new(LLAMA3),
            "glm4" | "glm5" => Self::new(LLAMA3).whole_words(),
            "minicpm5" => Self::new(&[THREE_DIGITS, Step::Words(Words { digits: usize::MAX, ..CL100K })]).whole_words(),
            "qwen2" | "qwen3" | "deepseek-r1-qwen" | "kormo" | "f2llmv2" | "stablelm2" | "hunyuan" | "solar-open"
            | "megrez" | "grok-2" | "bailingmoe" | "bailingmoe2" | "llada-moe" | "mellum-qwen" => Self::new(QWEN2),
            "qwen35" => Self::new(QWEN35),
            "ufakzeka" => Self::new(&[Step::Words(Words { digits: 1, contractions: Contractions::No, ..CL100K })]),
            "gpt-4o" | "llama4" | "kanana2" | "talkie" | "minimax-m2" => Self::new(&[Step::Words(O200K)]),
            "granite-embed-multi-97m" => Self::new(&[Step::Words(O200K)]).whole_words(),
            "tekken" => Self::new(&[Step::Words(TEKKEN)]).whole_words().add_bos(),
            "gpt-2" | "gpt2" | "phi-2" | "jina-es" | "jina-de" | "jina-v2-es" | "jina-v2-de" | "gigachat"
            | "a.x-4.0" | "mellum" | "modern-bert" | "mpt" | "olmo" | "jais" | "trillion" | "granite-docling"
            | "exaone4" | "jina-v1-en" | "jina-v2-code" | "roberta-bpe" => Self::new(&[GPT2]),
            "smollm" | "starcoder" | "refact" | "granite" | "command-r" | "codeshell" | "exaone" | "minerva-7b"
            | "mellum2" => Self::new(&[EACH_DIGIT, GPT2]),
            "falcon" => Self::new(&[PUNCTUATION_AND_BACKTICK, GPT2, EXACTLY_THREE_ASCII_DIGITS]),
            "deepseek-coder" => Self::new(&[EACH_NEWLINE, LED_LETTERS, LED_PUNCTUATION, DEEPSEEK_CJK, EACH_DIGIT]),
            "deepseek-v3" | "hunyuan-dense" | "joyai-llm" | "hy_v4" => {
                Self::new(&[THREE_DIGITS, CJK, Step::Scan(scan::deepseek3)])
            }
            "bloom" | "poro-chat" | "gpt3-finnish" => Self::new(&[BLOOM]),
            "viking" => Self::new(&[BLOOM, EACH_DIGIT]),
            _ => return None,
        })
    }

    /// Splits `text`, which must have been repaired, into the byte ranges of its pieces, in order and without gaps.
    pub(crate) fn split(&self, text: &[u8]) -> Vec<Range<usize>> {
        let chars = chars::chars(text);
        let mut ends = if chars.is_empty() { Vec::new() } else { vec![chars.len()] };
        for step in self.steps {
            let mut cut = Vec::with_capacity(ends.len() * 2);
            let mut start = 0;
            for end in ends {
                step.cut(&chars[..end], start, &mut cut);
                start = end;
            }
            ends = cut;
        }
        let mut start = 0;
        let offset = |at: usize| chars.get(at).map_or(text.len(), |char| char.offset as usize);
        ends.into_iter().map(|end| offset(std::mem::replace(&mut start, end))..offset(end)).collect()
    }
}

impl Step {
    /// Appends the ends of the pieces into which `chars[start..]` falls.
    fn cut(self, chars: &[Char], start: usize, ends: &mut Vec<usize>) {
        let mut at = start;
        // What lies before this and is not yet in `ends` was not matched.
        let mut unmatched = start;
        while at < chars.len() {
            let length = match self {
                Self::Scan(scan) => scan(&chars[at..]),
                Self::Words(rules) => scan::words(&rules, &chars[at..]),
            };
            if length == 0 {
                at += 1;
                continue;
            }
            if unmatched < at {
                ends.push(at);
            }
            at += length;
            unmatched = at;
            ends.push(at);
        }
        if unmatched < at {
            ends.push(at);
        }
    }
}

#[cfg(test)]
mod tests;
