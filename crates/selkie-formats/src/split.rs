//! Names of the parts of one model: `x-00002-of-00003.gguf`.

/// The most parts that are believed; the format's numbers have five digits.
const MAX_PARTS: u32 = 99_999;

/// The name of one part of several, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartName {
    /// What comes before the numbers, with the folder: `models/x`.
    pub stem: String,
    /// Which part, from 1.
    pub number: u32,
    /// How many parts there are.
    pub count: u32,
    /// What comes after the numbers, with its dot: `.gguf`.
    pub extension: String,
}

impl PartName {
    /// Takes a name apart; `None` where it does not end in `-00001-of-00003` and an extension.
    pub fn parse(name: &str) -> Option<Self> {
        let (rest, extension) = name.rsplit_once('.')?;
        let (rest, count) = rest.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let (number, count) = (five_digits(number)?, five_digits(count)?);
        (1..=count).contains(&number).then(|| Self {
            stem: stem.to_owned(),
            number,
            count,
            extension: format!(".{extension}"),
        })
    }

    /// The name of part `number` (from 1).
    pub fn sibling(&self, number: u32) -> String {
        format!("{}-{number:05}-of-{:05}{}", self.stem, self.count, self.extension)
    }
}

/// The names of all parts, in order, of the model that `name` is a part of; `None` where it is not named as one.
///
/// ```
/// let names = selkie_formats::sibling_names("x-00002-of-00003.gguf").unwrap();
/// assert_eq!(names, ["x-00001-of-00003.gguf", "x-00002-of-00003.gguf", "x-00003-of-00003.gguf"]);
/// ```
pub fn sibling_names(name: &str) -> Option<Vec<String>> {
    let part = PartName::parse(name)?;
    Some((1..=part.count).map(|number| part.sibling(number)).collect())
}

fn five_digits(text: &str) -> Option<u32> {
    let digits = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits && *number <= MAX_PARTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts() {
        let part = PartName::parse("a/b-c.d-00002-of-00010.gguf").unwrap();
        assert_eq!((part.stem.as_str(), part.number, part.count, part.extension.as_str()), ("a/b-c.d", 2, 10, ".gguf"));
        assert_eq!(part.sibling(10), "a/b-c.d-00010-of-00010.gguf");
        assert_eq!(sibling_names("model-00001-of-00002.safetensors").unwrap().len(), 2);
        for name in [
            "x.gguf",
            "x-1-of-3.gguf",
            "x-00000-of-00003.gguf",
            "x-00004-of-00003.gguf",
            "x-00001-of-00003",
            "x-+0001-of-00003.gguf",
            "",
        ] {
            assert_eq!(PartName::parse(name), None, "{name}");
        }
    }
}
