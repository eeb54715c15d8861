//! Settings of a configuration: a layer's own, else its type's, else the model's.

use serde_json::{Map, Value};

use super::{config::MAX_SIZE, seed_of};
use crate::{Error, Result};

/// An object of the configuration.
#[derive(Clone)]
pub(super) struct Scope<'a> {
    /// What its keys are prefixed with in errors.
    pub path: String,
    pub map: &'a Map<String, Value>,
}

/// A setting that was found.
pub(super) struct Found<'a> {
    path: String,
    pub value: &'a Value,
}

impl<'a> Scope<'a> {
    /// No settings at all.
    pub fn empty() -> Self {
        static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        Self { path: String::new(), map: &EMPTY }
    }

    /// The object at `key`; none of its settings where there is none.
    pub fn inner(&self, file: &str, key: &str) -> Result<Scope<'a>> {
        match self.get(key) {
            None => Ok(Scope::empty()),
            Some(Found { path, value: Value::Object(map) }) => Ok(Scope { path: format!("{path}."), map }),
            Some(Found { path, value }) => {
                Err(Error::Key { file: file.to_owned(), key: path, what: format!("{value}, but an object is wanted") })
            }
        }
    }

    /// The setting; `null` is none.
    fn get(&self, key: &str) -> Option<Found<'a>> {
        let value = self.map.get(key).filter(|value| !value.is_null())?;
        Some(Found { path: format!("{}{key}", self.path), value })
    }
}

/// Where the settings of one layer, or of the model, are looked up.
pub(super) struct Settings<'a> {
    file: &'a str,
    /// The layer's own and its type's, in this order.
    own: Vec<Scope<'a>>,
    model: Scope<'a>,
}

impl<'a> Settings<'a> {
    pub fn new(file: &'a str, own: Vec<Scope<'a>>, model: Scope<'a>) -> Self {
        Self { file, own, model }
    }

    /// An error about `key`, wherever that is set.
    pub fn error(&self, key: &str, what: String) -> Error {
        let found = self.shared(key).map(|found| found.path);
        let key = found.unwrap_or_else(|| format!("{}{key}", self.model.path));
        Error::Key { file: self.file.to_owned(), key, what }
    }

    /// A setting that the model shares with its layers.
    pub fn shared(&self, key: &str) -> Option<Found<'a>> {
        self.own(key).or_else(|| self.model.get(key))
    }

    /// A setting that the model has not.
    fn own(&self, key: &str) -> Option<Found<'a>> {
        self.own.iter().find_map(|scope| scope.get(key))
    }

    /// A size without which there is no model.
    pub fn needed_size(&self, key: &str) -> Result<usize> {
        let found = self.shared(key).ok_or_else(|| self.error(key, "missing".to_owned()))?;
        self.as_size(found)
    }

    /// A shared size.
    pub fn size(&self, key: &str, default: usize) -> Result<usize> {
        self.shared(key).map_or(Ok(default), |found| self.as_size(found))
    }

    /// A size that the model has not.
    pub fn own_size(&self, key: &str, default: usize) -> Result<usize> {
        self.own(key).map_or(Ok(default), |found| self.as_size(found))
    }

    /// `width` times a shared factor.
    pub fn multiple(&self, key: &str, default: usize, width: usize) -> Result<usize> {
        self.as_multiple(key, self.shared(key), default, width)
    }

    /// `width` times a factor that the model has not.
    pub fn own_multiple(&self, key: &str, default: usize, width: usize) -> Result<usize> {
        self.as_multiple(key, self.own(key), default, width)
    }

    /// A switch that the model has not; off by default.
    pub fn own_flag(&self, key: &str) -> Result<bool> {
        match self.own(key) {
            None => Ok(false),
            Some(Found { value: Value::Bool(flag), .. }) => Ok(*flag),
            Some(found) => Err(self.wanted(found, "true or false")),
        }
    }

    /// A token's id; a negative one is none.
    pub fn token(&self, key: &str) -> Result<Option<u32>> {
        let Some(found) = self.model.get(key) else { return Ok(None) };
        match found.value.as_f64() {
            Some(id) if id.fract() == 0.0 && id <= u32::MAX.into() => Ok((id >= 0.0).then_some(id as u32)),
            _ => Err(self.wanted(found, "a token's id, or -1 for none")),
        }
    }

    /// A seed: any number.
    pub fn seed(&self, key: &str) -> Result<Option<u32>> {
        let Some(found) = self.model.get(key) else { return Ok(None) };
        // By way of f64, as JavaScript has no other numbers.
        let number = found.value.as_f64().ok_or_else(|| self.wanted(found, "a number"))?;
        Ok(Some(seed_of(number)))
    }

    fn as_size(&self, found: Found<'_>) -> Result<usize> {
        whole(found.value.as_f64()).ok_or_else(|| self.wanted(found, &format!("a whole number from 1 to {MAX_SIZE}")))
    }

    fn as_multiple(&self, key: &str, found: Option<Found<'_>>, default: usize, width: usize) -> Result<usize> {
        match found {
            Some(found) => whole(found.value.as_f64().map(|factor| factor * width as f64)).ok_or_else(|| {
                self.wanted(found, &format!("a factor that makes a width from 1 to {MAX_SIZE} of {width}"))
            }),
            None => whole(Some((default * width) as f64))
                .ok_or_else(|| self.error(key, format!("{default} times {width} is more than {MAX_SIZE}"))),
        }
    }

    fn wanted(&self, found: Found<'_>, wanted: &str) -> Error {
        let what = format!("{}, but {wanted} is wanted", found.value);
        Error::Key { file: self.file.to_owned(), key: found.path, what }
    }
}

/// A size, where `number` is one.
fn whole(number: Option<f64>) -> Option<usize> {
    number.filter(|number| number.fract() == 0.0 && (1.0..=MAX_SIZE as f64).contains(number)).map(|size| size as usize)
}
