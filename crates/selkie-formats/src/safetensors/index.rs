//! `model.safetensors.index.json`: which shard holds which tensor.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Error, Result};

/// Which shard file holds which tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardIndex {
    /// What errors call the index.
    pub file: String,
    /// The shards' file names, sorted, each once.
    pub shards: Vec<String>,
    /// The shard of each tensor, as a position in `shards`.
    pub tensors: BTreeMap<String, usize>,
}

/// The file, less what is of no use here.
#[derive(serde::Deserialize)]
struct Stored {
    weight_map: BTreeMap<String, String>,
}

impl ShardIndex {
    /// Reads an index file.
    ///
    /// # Errors
    /// Where it is not JSON of that form, and where a shard's name has a folder in it: shards lie beside their index.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self> {
        let error = |what: String| Error::Read { file: file.to_owned(), what };
        let stored: Stored = serde_json::from_slice(bytes).map_err(|problem| error(problem.to_string()))?;
        let shards: Vec<String> = stored.weight_map.values().collect::<BTreeSet<_>>().into_iter().cloned().collect();
        if let Some(shard) =
            shards.iter().find(|shard| shard.contains(['/', '\\']) || *shard == ".." || shard.is_empty())
        {
            return Err(error(format!("`{shard}` is not a file name")));
        }
        let place = |(tensor, shard)| Some((tensor, shards.binary_search(&shard).ok()?));
        let tensors = stored.weight_map.into_iter().filter_map(place).collect();
        Ok(Self { file: file.to_owned(), shards, tensors })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index() {
        let text = br#"{"metadata": {"total_size": 3}, "weight_map": {"a": "2.st", "b": "1.st", "c": "2.st"}}"#;
        let index = ShardIndex::parse("index", text).unwrap();
        assert_eq!(index.shards, ["1.st", "2.st"]);
        assert_eq!(index.tensors.into_iter().collect::<Vec<_>>(), [("a".into(), 1), ("b".into(), 0), ("c".into(), 1)]);
    }

    #[test]
    fn shards_lie_beside_their_index() {
        for text in
            [r#"{"weight_map": {"a": "../x"}}"#, r#"{"weight_map": {"a": ""}}"#, "{}", "[", r#"{"weight_map": 1}"#]
        {
            assert!(ShardIndex::parse("index", text.as_bytes()).is_err(), "{text}");
        }
    }
}
