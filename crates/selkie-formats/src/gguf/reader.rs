//! Parsing a GGUF header out of a prefix of the file.

use std::collections::HashSet;

use bytes::Bytes;

use super::{
    ALIGNMENT_KEY, Array, DEFAULT_ALIGNMENT, GgufFile, MAGIC, MAX_ALIGNMENT, MAX_AXES, MAX_DEPTH, Metadata, Strings,
    Value, strings::PREFIX, value_type,
};
use crate::{ByteSource, DType, Error, Result, TensorInfo, layout};

/// How much of a file is asked for first.
const FIRST_READ: u64 = 1 << 20;

/// The longest header that is believed; string arrays count their bytes in u32.
const MAX_HEADER: u64 = 1 << 30;

/// The fewest bytes that a metadata pair takes: the length of its key, its type, a value.
const MIN_PAIR: u64 = 8 + 4 + 1;

/// The fewest bytes that a tensor's description takes: the length of its name, axes, type, offset.
const MIN_TENSOR: u64 = 8 + 4 + 4 + 8;

/// What a string of a vocabulary takes, its length included, with room for the scores and types that follow.
const TYPICAL_STRING: u64 = 24;

/// Why parsing stopped.
enum Stop {
    /// The prefix is too short; it should reach so far.
    More(u64),
    /// The file is malformed.
    Bad(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Bad(error)
    }
}

type Parsed<T> = Result<T, Stop>;

pub async fn read(source: &dyn ByteSource) -> Result<GgufFile> {
    let mut wanted = FIRST_READ.min(source.len());
    loop {
        let prefix = source.read(0..wanted).await?;
        if prefix.len() as u64 != wanted {
            let what = format!("{wanted} bytes asked for, but {} came", prefix.len());
            return Err(Error::Read { file: source.name().to_owned(), what });
        }
        // A header is parsed anew from each longer prefix: simpler than resuming, and as prefixes grow by a factor, the
        // last one costs more than all before.
        match (Parser { file: source.name(), len: source.len(), prefix, at: 0 }).file() {
            Ok(file) => return Ok(file),
            Err(Stop::Bad(error)) => return Err(error),
            Err(Stop::More(least)) => wanted = least.max(wanted.saturating_mul(4)).min(source.len()),
        }
    }
}

struct Parser<'a> {
    file: &'a str,
    /// Length of the whole file.
    len: u64,
    /// Its first bytes.
    prefix: Bytes,
    /// How far it is parsed; never past the prefix.
    at: usize,
}

impl Parser<'_> {
    fn file(mut self) -> Parsed<GgufFile> {
        if *self.take(4, "the magic")? != MAGIC {
            return Err(self.bad(0, "not a GGUF file: it does not begin with `GGUF`"));
        }
        let version = u32::from_le_bytes(self.number("the version")?);
        match version {
            2 | 3 => {}
            _ if matches!(version.swap_bytes(), 1..=3) => {
                return Err(self.bad(4, "a big-endian GGUF file; only little-endian ones are supported"));
            }
            _ => return Err(self.bad(4, format!("GGUF version {version}; only 2 and 3 are supported"))),
        }
        let tensor_count = self.count("tensors", MIN_TENSOR)?;
        let pair_count = self.count("metadata pairs", MIN_PAIR)?;

        let mut metadata = Metadata::new(self.file);
        for _ in 0..pair_count {
            self.pair(&mut metadata)?;
        }
        let alignment = self.alignment(&metadata)?;

        let mut descriptions = Vec::new();
        let mut names = HashSet::new();
        for _ in 0..tensor_count {
            let description = self.description()?;
            if !names.insert(description.name.clone()) {
                return Err(Stop::Bad(self.tensor_error(&description.name, "a second tensor of that name")));
            }
            descriptions.push(description);
        }
        let data_start = (self.at as u64).next_multiple_of(alignment);
        let tensors: Vec<_> = descriptions
            .into_iter()
            .map(|description| self.place(description, data_start, alignment))
            .collect::<Result<_>>()?;
        layout::check_overlaps(self.file, tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.range.clone())))?;
        let end = tensors.iter().map(|tensor| tensor.range.end).max().unwrap_or(data_start);
        if self.len > end.next_multiple_of(alignment) {
            let what = format!("the tensors end here, but the file goes on to {}", self.len);
            return Err(self.bad(end, what));
        }
        Ok(GgufFile { version, metadata, tensors, alignment, data_start })
    }

    /// A key and its value.
    fn pair(&mut self, metadata: &mut Metadata) -> Parsed<()> {
        let at = self.at;
        let key = self.string("a metadata key")?;
        let kind = u32::from_le_bytes(self.number("a value's type")?);
        let value = self.value(kind, &format!("`{key}`"))?;
        if metadata.contains(&key) {
            return Err(self.bad(at, format!("a second metadata key `{key}`")));
        }
        metadata.set(key, value);
        Ok(())
    }

    /// A value; `key` is its key as errors say it.
    fn value(&mut self, kind: u32, key: &str) -> Parsed<Value> {
        use value_type::*;
        Ok(match kind {
            U8 => Value::U8(u8::from_le_bytes(self.number(key)?)),
            I8 => Value::I8(i8::from_le_bytes(self.number(key)?)),
            U16 => Value::U16(u16::from_le_bytes(self.number(key)?)),
            I16 => Value::I16(i16::from_le_bytes(self.number(key)?)),
            U32 => Value::U32(u32::from_le_bytes(self.number(key)?)),
            I32 => Value::I32(i32::from_le_bytes(self.number(key)?)),
            F32 => Value::F32(f32::from_le_bytes(self.number(key)?)),
            U64 => Value::U64(u64::from_le_bytes(self.number(key)?)),
            I64 => Value::I64(i64::from_le_bytes(self.number(key)?)),
            F64 => Value::F64(f64::from_le_bytes(self.number(key)?)),
            BOOL => {
                let at = self.at;
                let [byte] = self.number(key)?;
                Value::Bool(self.boolean(byte, at, key)?)
            }
            STRING => Value::String(self.string(key)?),
            ARRAY => Value::Array(self.array(key, 1)?),
            _ => return Err(self.bad(self.at - 4, format!("{key}: unknown value type {kind}"))),
        })
    }

    fn array(&mut self, key: &str, depth: usize) -> Parsed<Array> {
        use value_type::*;
        if depth > MAX_DEPTH {
            return Err(self.bad(self.at, format!("{key}: arrays nested more than {MAX_DEPTH} deep")));
        }
        let kind_at = self.at;
        let kind = u32::from_le_bytes(self.number(key)?);
        Ok(match kind {
            U8 => Array::U8(self.numbers(key, u8::from_le_bytes)?),
            I8 => Array::I8(self.numbers(key, i8::from_le_bytes)?),
            U16 => Array::U16(self.numbers(key, u16::from_le_bytes)?),
            I16 => Array::I16(self.numbers(key, i16::from_le_bytes)?),
            U32 => Array::U32(self.numbers(key, u32::from_le_bytes)?),
            I32 => Array::I32(self.numbers(key, i32::from_le_bytes)?),
            F32 => Array::F32(self.numbers(key, f32::from_le_bytes)?),
            U64 => Array::U64(self.numbers(key, u64::from_le_bytes)?),
            I64 => Array::I64(self.numbers(key, i64::from_le_bytes)?),
            F64 => Array::F64(self.numbers(key, f64::from_le_bytes)?),
            BOOL => {
                let bytes = self.numbers(key, u8::from_le_bytes)?;
                let start = self.at - bytes.len();
                let booleans = bytes.iter().enumerate().map(|(index, &byte)| self.boolean(byte, start + index, key));
                Array::Bool(booleans.collect::<Parsed<_>>()?)
            }
            STRING => Array::String(self.strings(key)?),
            ARRAY => {
                let count = self.count(key, 4 + 8)?;
                let mut arrays = Vec::new();
                for _ in 0..count {
                    arrays.push(self.array(key, depth + 1)?);
                }
                Array::Array(arrays)
            }
            _ => return Err(self.bad(kind_at, format!("{key}: unknown type {kind} of array elements"))),
        })
    }

    /// A counted array of numbers.
    fn numbers<const SIZE: usize, T>(&mut self, key: &str, read: impl Fn([u8; SIZE]) -> T) -> Parsed<Vec<T>> {
        let count = self.count(key, SIZE as u64)?;
        let bytes = self.take(count * SIZE as u64, key)?;
        Ok(bytes.as_chunks::<SIZE>().0.iter().map(|bytes| read(*bytes)).collect())
    }

    /// A counted array of strings, as a slice of the prefix.
    ///
    /// A vocabulary is the longest thing in a header, so the loop is a tight one.
    fn strings(&mut self, key: &str) -> Parsed<Strings> {
        let count = self.count(key, PREFIX as u64)?;
        let start = self.at;
        self.peek(count * PREFIX as u64, key).map_err(|stop| match stop {
            // Not even the lengths are there. Asking for what the strings are likely to need saves an attempt.
            Stop::More(_) => Stop::More((start as u64 + count * TYPICAL_STRING).min(MAX_HEADER)),
            bad => bad,
        })?;
        // The prefix holds that many lengths, so the memory is justified. MAX_HEADER is below what u32 holds.
        let mut ends = Vec::with_capacity(count as usize);
        let strings = self.prefix.clone();
        let mut rest = strings.get(start..).unwrap_or_default();
        for index in 0..count {
            let text = rest.split_first_chunk().and_then(|(len, after)| {
                let (text, after) = after.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
                rest = after;
                Some(text)
            });
            self.at = strings.len() - rest.len();
            let Some(text) = text else {
                // The string reaches past the prefix, if not past the file.
                let len = self.count(key, 1)?;
                return Err(Stop::More(self.at as u64 + len));
            };
            if std::str::from_utf8(text).is_err() {
                let at = self.at - text.len() - PREFIX;
                return Err(self.bad(at, format!("{key}: string {index} is not UTF-8")));
            }
            ends.push((self.at - start) as u32);
        }
        Ok(Strings::from_parts(strings.slice(start..self.at), ends))
    }

    fn string(&mut self, what: &str) -> Parsed<String> {
        let at = self.at;
        let len = self.count(what, 1)?;
        let text = std::str::from_utf8(self.take(len, what)?).map(str::to_owned);
        text.map_err(|_| self.bad(at, format!("{what}: not UTF-8")))
    }

    fn boolean(&self, byte: u8, at: usize, key: &str) -> Parsed<bool> {
        match byte {
            0 | 1 => Ok(byte == 1),
            _ => Err(self.bad(at as u64, format!("{key}: a boolean is 0 or 1, not {byte}"))),
        }
    }

    fn alignment(&self, metadata: &Metadata) -> Parsed<u64> {
        let Some(value) = metadata.get(ALIGNMENT_KEY) else { return Ok(DEFAULT_ALIGNMENT) };
        super::alignment(value).ok_or_else(|| {
            let what = format!("a power of two up to {MAX_ALIGNMENT} wanted, but the value is {value:?}");
            Stop::Bad(Error::Key { file: self.file.to_owned(), key: ALIGNMENT_KEY.to_owned(), what })
        })
    }

    fn description(&mut self) -> Parsed<Description> {
        let name = self.string("a tensor's name")?;
        let axes = u32::from_le_bytes(self.number("a tensor's number of axes")?);
        if axes > MAX_AXES {
            return Err(Stop::Bad(self.tensor_error(&name, format!("{axes} axes; at most {MAX_AXES} are possible"))));
        }
        let mut shape = Vec::with_capacity(axes as usize);
        for _ in 0..axes {
            let size = u64::from_le_bytes(self.number("a tensor's shape")?);
            match usize::try_from(size) {
                Ok(size) if size > 0 => shape.insert(0, size),
                _ => return Err(Stop::Bad(self.tensor_error(&name, format!("an axis of size {size}")))),
            }
        }
        let id = u32::from_le_bytes(self.number("a tensor's type")?);
        let dtype = DType::from_ggml_id(id);
        let dtype = dtype.ok_or_else(|| self.tensor_error(&name, format!("unknown type {id}")))?;
        let offset = u64::from_le_bytes(self.number("a tensor's offset")?);
        Ok(Description { name, dtype, shape, offset })
    }

    /// Where a described tensor lies in the file.
    fn place(&self, description: Description, data_start: u64, alignment: u64) -> Result<TensorInfo> {
        let Description { name, dtype, shape, offset } = description;
        let Some(bytes) = layout::stored_bytes(dtype, &shape) else {
            let what = format!("shape {shape:?} is impossible for {dtype} (rows of {} values)", dtype.block_len());
            return Err(self.tensor_error(&name, what));
        };
        if !offset.is_multiple_of(alignment) {
            let what = format!("its offset {offset} is not a multiple of the alignment {alignment}");
            return Err(self.tensor_error(&name, what));
        }
        let start = data_start.checked_add(offset);
        match start.and_then(|start| Some(start..start.checked_add(bytes)?)) {
            Some(range) if range.end <= self.len => Ok(TensorInfo { name, dtype, shape, source: 0, range }),
            _ => {
                let what = format!(
                    "its {bytes} bytes from {data_start} + {offset} reach past the end of the file at {}",
                    self.len
                );
                Err(self.tensor_error(&name, what))
            }
        }
    }

    /// A count of things that take at least `least` bytes each, which the rest of the file must have room for.
    fn count(&mut self, what: &str, least: u64) -> Parsed<u64> {
        let at = self.at;
        let count = u64::from_le_bytes(self.number(what)?);
        let rest = self.len - self.at as u64;
        if count > rest / least {
            let unit = if least == 1 { "bytes" } else { "elements" };
            return Err(self.bad(at, format!("{what}: {count} {unit}, but only {rest} bytes are left in the file")));
        }
        Ok(count)
    }

    fn number<const SIZE: usize>(&mut self, what: &str) -> Parsed<[u8; SIZE]> {
        match self.take(SIZE as u64, what)?.first_chunk() {
            Some(bytes) => Ok(*bytes),
            None => unreachable!("take answers as many bytes as it is asked for"),
        }
    }

    /// The next `len` bytes.
    fn take(&mut self, len: u64, what: &str) -> Parsed<&[u8]> {
        let start = self.at;
        self.at = self.peek(len, what)?;
        Ok(self.prefix.get(start..self.at).unwrap_or_default())
    }

    /// Where the next `len` bytes end; they are in the prefix.
    fn peek(&self, len: u64, what: &str) -> Parsed<usize> {
        let at = self.at as u64;
        let end = at.checked_add(len).filter(|end| *end <= self.len);
        let end = end.ok_or_else(|| self.bad(at, format!("{what}: the file ends at {}", self.len)))?;
        if end > MAX_HEADER {
            return Err(self.bad(at, format!("{what}: the header is longer than {MAX_HEADER} bytes")));
        }
        if end > self.prefix.len() as u64 { Err(Stop::More(end)) } else { Ok(end as usize) }
    }

    fn bad(&self, offset: impl TryInto<u64>, what: impl Into<String>) -> Stop {
        // An offset inside a prefix fits.
        let offset = offset.try_into().unwrap_or(u64::MAX);
        Stop::Bad(Error::Header { file: self.file.to_owned(), offset, what: what.into() })
    }

    fn tensor_error(&self, tensor: &str, what: impl Into<String>) -> Error {
        Error::Tensor { file: self.file.to_owned(), tensor: tensor.to_owned(), what: what.into() }
    }
}

/// A tensor as the header writes it.
struct Description {
    name: String,
    dtype: DType,
    /// Slowest axis first already.
    shape: Vec<usize>,
    /// From the start of the data.
    offset: u64,
}
