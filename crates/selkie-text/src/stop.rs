//! When to stop: at certain tokens, or where the text says so.

/// What ends a generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopRules {
    /// Tokens that end it; usually [`Tokenizer::end_tokens`](crate::Tokenizer::end_tokens).
    pub ids: Vec<u32>,
    /// Texts that end it and are left out of the result. Empty ones are ignored.
    pub strings: Vec<String>,
}

impl StopRules {
    /// Whether this token ends the generation.
    #[must_use]
    pub fn stops_at(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }

    /// A matcher for the strings.
    #[must_use]
    pub fn matcher(&self) -> StopMatcher {
        let strings = self.strings.iter().filter(|string| !string.is_empty()).cloned().collect();
        StopMatcher { strings, held: String::new(), stopped: false }
    }
}

/// What came of a piece of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopStep {
    /// Text that is certainly part of the result.
    pub emit: String,
    /// A stop string is complete: nothing follows.
    pub stopped: bool,
}

/// Looks for stop strings in a stream of text, however the text is cut into pieces.
///
/// The generation stops where the first stop string is completed; of several that end at the same place the longest counts.
/// Text is held back only while it may still become a stop string.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    strings: Vec<String>,
    held: String,
    stopped: bool,
}

impl StopMatcher {
    /// Takes the next piece of text. After a stop, everything is swallowed.
    pub fn push(&mut self, text: &str) -> StopStep {
        if self.stopped {
            return StopStep { emit: String::new(), stopped: true };
        }
        self.held.push_str(text);
        if let Some(start) = self.first_match() {
            self.held.truncate(start);
            self.stopped = true;
            return StopStep { emit: std::mem::take(&mut self.held), stopped: true };
        }
        let rest = self.held.split_off(self.held.len() - self.open_length());
        StopStep { emit: std::mem::replace(&mut self.held, rest), stopped: false }
    }

    /// What was held back, at the end of the stream. The matcher is ready for another stream.
    pub fn finish(&mut self) -> String {
        self.stopped = false;
        std::mem::take(&mut self.held)
    }

    /// Whether a stop string has been found.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Where the match begins that ends first.
    fn first_match(&self) -> Option<usize> {
        let matches = self.strings.iter().filter_map(|string| {
            let start = self.held.find(string.as_str())?;
            Some((start + string.len(), start))
        });
        matches.min().map(|(_, start)| start)
    }

    /// The length of the longest end of the held text that begins a stop string.
    fn open_length(&self) -> usize {
        let held = self.held.as_bytes();
        let open = |string: &String| {
            let longest = held.len().min(string.len() - 1);
            (1..=longest).rev().find(|&length| held.ends_with(&string.as_bytes()[..length]))
        };
        // A prefix that cuts a character in two never ends a whole text, so this is a character's border.
        self.strings.iter().filter_map(open).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(strings: &[&str]) -> StopRules {
        StopRules { ids: vec![2], strings: strings.iter().map(|&string| string.to_owned()).collect() }
    }

    #[test]
    fn finds_strings_across_pieces() {
        let mut matcher = rules(&["\nUser:", ""]).matcher();
        assert_eq!(matcher.push("Hello\nUs").emit, "Hello");
        assert_eq!(matcher.push("e"), StopStep::default());
        assert_eq!(matcher.push("ful\n\n").emit, "\nUseful\n");
        assert_eq!(matcher.push("User: x"), StopStep { emit: String::new(), stopped: true });
        assert_eq!(matcher.push("more"), StopStep { emit: String::new(), stopped: true });
        assert!(matcher.stopped());
        assert_eq!(matcher.finish(), "");
    }

    #[test]
    fn gives_back_what_never_became_a_stop() {
        let mut matcher = rules(&["stop", "é€"]).matcher();
        assert_eq!(matcher.push("a st").emit, "a ");
        assert_eq!(matcher.finish(), "st");
        assert_eq!(matcher.push("caf\u{e9}").emit, "caf");
        assert_eq!(matcher.push("€x"), StopStep { emit: String::new(), stopped: true });
    }

    #[test]
    fn the_first_completed_match_counts() {
        let mut matcher = rules(&["abcd", "bc", "xbc"]).matcher();
        assert_eq!(matcher.push("1abcd"), StopStep { emit: "1a".into(), stopped: true });
        let mut matcher = rules(&["bc", "xbc"]).matcher();
        assert_eq!(matcher.push("1xbc"), StopStep { emit: "1".into(), stopped: true });
    }

    #[test]
    fn ids() {
        assert!(rules(&[]).stops_at(2));
        assert!(!rules(&[]).stops_at(1));
    }
}
