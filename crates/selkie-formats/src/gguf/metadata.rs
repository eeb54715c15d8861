//! The typed key-value pairs of a GGUF file.

use std::collections::HashMap;

use super::Strings;
use crate::{Error, Result};

/// A metadata value. The variants are the format's value types.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are the format's own")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// An array of metadata values, all of one type.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are the format's own")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Strings),
    Array(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl Value {
    /// The value as an unsigned integer, whatever integer type it is stored as; `None` for other types and below 0.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Value::U64(value) => Some(value),
            _ => self.as_i64().and_then(|value| value.try_into().ok()),
        }
    }

    /// The value as a signed integer, whatever integer type it is stored as; `None` for other types and out of range.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Value::U8(value) => Some(value.into()),
            Value::I8(value) => Some(value.into()),
            Value::U16(value) => Some(value.into()),
            Value::I16(value) => Some(value.into()),
            Value::U32(value) => Some(value.into()),
            Value::I32(value) => Some(value.into()),
            Value::U64(value) => value.try_into().ok(),
            Value::I64(value) => Some(value),
            _ => None,
        }
    }

    /// The value as a float: floats, and integers too.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Value::F32(value) => Some(value.into()),
            Value::F64(value) => Some(value),
            Value::U64(value) => Some(value as f64),
            _ => self.as_i64().map(|value| value as f64),
        }
    }

    /// As [`as_f64`](Self::as_f64), rounded.
    pub fn as_f32(&self) -> Option<f32> {
        self.as_f64().map(|value| value as f32)
    }

    /// The value where it is a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(value) = *self { Some(value) } else { None }
    }

    /// The value where it is a string.
    pub fn as_str(&self) -> Option<&str> {
        if let Value::String(value) = self { Some(value) } else { None }
    }

    /// The value where it is an array.
    pub fn as_array(&self) -> Option<&Array> {
        if let Value::Array(value) = self { Some(value) } else { None }
    }

    /// The type's name, as errors say it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::U8(_) => "u8",
            Value::I8(_) => "i8",
            Value::U16(_) => "u16",
            Value::I16(_) => "i16",
            Value::U32(_) => "u32",
            Value::I32(_) => "i32",
            Value::F32(_) => "f32",
            Value::Bool(_) => "a boolean",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
            Value::U64(_) => "u64",
            Value::I64(_) => "i64",
            Value::F64(_) => "f64",
        }
    }
}

/// Converts the elements of a numeric array; `None` for strings, nested arrays and where an element does not fit.
macro_rules! convert {
    ($array:expr, $($variant:ident)|+ => $each:expr) => {
        match $array {
            $(Array::$variant(values) => values.iter().map(|&value| $each(Value::$variant(value))).collect(),)+
            _ => None,
        }
    };
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(values) => values.len(),
            Array::I8(values) => values.len(),
            Array::U16(values) => values.len(),
            Array::I16(values) => values.len(),
            Array::U32(values) => values.len(),
            Array::I32(values) => values.len(),
            Array::F32(values) => values.len(),
            Array::Bool(values) => values.len(),
            Array::String(values) => values.len(),
            Array::Array(values) => values.len(),
            Array::U64(values) => values.len(),
            Array::I64(values) => values.len(),
            Array::F64(values) => values.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements where they are strings.
    pub fn as_strings(&self) -> Option<&Strings> {
        if let Array::String(values) = self { Some(values) } else { None }
    }

    /// The elements as unsigned integers, whatever integer type they are stored as; `None` where one is not.
    pub fn to_u64s(&self) -> Option<Vec<u64>> {
        convert!(self, U8 | I8 | U16 | I16 | U32 | I32 | U64 | I64 => |value: Value| value.as_u64())
    }

    /// The elements as signed integers, whatever integer type they are stored as; `None` where one is not.
    pub fn to_i64s(&self) -> Option<Vec<i64>> {
        convert!(self, U8 | I8 | U16 | I16 | U32 | I32 | U64 | I64 => |value: Value| value.as_i64())
    }

    /// The elements as floats (integers too), rounded; `None` where one is not a number.
    pub fn to_f32s(&self) -> Option<Vec<f32>> {
        if let Array::F32(values) = self {
            return Some(values.clone());
        }
        convert!(self, U8 | I8 | U16 | I16 | U32 | I32 | U64 | I64 | F64 => |value: Value| value.as_f32())
    }

    /// The elements as booleans: booleans, and integers (0 is false).
    pub fn to_bools(&self) -> Option<Vec<bool>> {
        if let Array::Bool(values) = self {
            return Some(values.clone());
        }
        self.to_i64s().map(|values| values.into_iter().map(|value| value != 0).collect())
    }
}

/// The metadata of a GGUF file: values by key, in the file's order.
///
/// The `get_…` methods answer `None` where the key is missing *or* holds another type; the `need_…` methods tell those
/// apart in their error, which names file and key.
#[derive(Clone, Default)]
pub struct Metadata {
    file: String,
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl std::fmt::Debug for Metadata {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl PartialEq for Metadata {
    /// The same pairs in the same order, from whatever file.
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Metadata {
    /// No metadata yet; errors call the file `file`.
    pub fn new(file: impl Into<String>) -> Self {
        Self { file: file.into(), ..Self::default() }
    }

    /// What errors call the file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The pairs, in the file's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Sets a value: in its place where the key is known, else at the end. Answers the value before.
    pub fn set(&mut self, key: impl Into<String>, value: Value) -> Option<Value> {
        let key = key.into();
        if let Some((_, known)) = self.index.get(&key).and_then(|&at| self.entries.get_mut(at)) {
            return Some(std::mem::replace(known, value));
        }
        self.index.insert(key.clone(), self.entries.len());
        self.entries.push((key, value));
        None
    }

    /// Takes a pair out; the order of the others stays.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let at = self.index.remove(key)?;
        for later in self.index.values_mut().filter(|later| **later > at) {
            *later -= 1;
        }
        Some(self.entries.remove(at).1)
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).and_then(|&at| self.entries.get(at)).map(|(_, value)| value)
    }

    /// Whether there is a value of that key.
    pub fn contains(&self, key: &str) -> bool {
        self.index.contains_key(key)
    }

    /// See [`Value::as_u64`].
    pub fn get_u64(&self, key: &str) -> Option<u64> {
        self.get(key)?.as_u64()
    }

    /// See [`Value::as_i64`].
    pub fn get_i64(&self, key: &str) -> Option<i64> {
        self.get(key)?.as_i64()
    }

    /// See [`Value::as_f32`].
    pub fn get_f32(&self, key: &str) -> Option<f32> {
        self.get(key)?.as_f32()
    }

    /// See [`Value::as_bool`].
    pub fn get_bool(&self, key: &str) -> Option<bool> {
        self.get(key)?.as_bool()
    }

    /// See [`Value::as_str`].
    pub fn get_str(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    /// See [`Value::as_array`].
    pub fn get_array(&self, key: &str) -> Option<&Array> {
        self.get(key)?.as_array()
    }

    /// The array of strings of that key.
    pub fn get_strings(&self, key: &str) -> Option<&Strings> {
        self.get_array(key)?.as_strings()
    }

    /// The unsigned integer of that key.
    ///
    /// # Errors
    /// [`Error::Key`] where it is missing, of another type or negative; so for the other `need_…`.
    pub fn need_u64(&self, key: &str) -> Result<u64> {
        self.need(key, "an unsigned integer", Value::as_u64)
    }

    /// The number of that key, as a float.
    pub fn need_f32(&self, key: &str) -> Result<f32> {
        self.need(key, "a number", Value::as_f32)
    }

    /// The boolean of that key.
    pub fn need_bool(&self, key: &str) -> Result<bool> {
        self.need(key, "a boolean", Value::as_bool)
    }

    /// The string of that key.
    pub fn need_str(&self, key: &str) -> Result<&str> {
        self.need(key, "a string", Value::as_str)
    }

    /// The array of that key.
    pub fn need_array(&self, key: &str) -> Result<&Array> {
        self.need(key, "an array", Value::as_array)
    }

    /// The array of strings of that key.
    pub fn need_strings(&self, key: &str) -> Result<&Strings> {
        self.need(key, "an array of strings", |value| value.as_array()?.as_strings())
    }

    fn need<'a, T>(&'a self, key: &str, wanted: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<T> {
        let error = |what| Error::Key { file: self.file.clone(), key: key.to_owned(), what };
        let value = self.get(key).ok_or_else(|| error("missing".to_owned()))?;
        read(value).ok_or_else(|| error(format!("{wanted} wanted, but the value is {}", value.type_name())))
    }
}

impl<K: Into<String>> FromIterator<(K, Value)> for Metadata {
    fn from_iter<I: IntoIterator<Item = (K, Value)>>(pairs: I) -> Self {
        let mut metadata = Metadata::default();
        for (key, value) in pairs {
            metadata.set(key, value);
        }
        metadata
    }
}
