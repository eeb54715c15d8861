//! GGUF files that are wrong in one way each: one clear line, no panic.

mod common;

use common::read_gguf as read;

/// A file in the making.
#[derive(Default, Clone)]
struct Raw(Vec<u8>);

impl Raw {
    /// The header's first 24 bytes.
    fn new(tensors: u64, pairs: u64) -> Self {
        Raw(b"GGUF".to_vec()).u32(3).u64(tensors).u64(pairs)
    }

    fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    fn text(self, text: &[u8]) -> Self {
        self.u64(text.len() as u64).bytes(text)
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// A tensor's description, sizes fastest first.
    fn tensor(self, name: &str, sizes: &[u64], kind: u32, offset: u64) -> Self {
        let begun = self.text(name.as_bytes()).u32(sizes.len() as u32);
        sizes.iter().fold(begun, |raw, size| raw.u64(*size)).u32(kind).u64(offset)
    }

    /// Padding to the default alignment, then data.
    fn data(mut self, len: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(32) + len, 0);
        self
    }
}

/// The error, which must name the file and have one line.
#[track_caller]
fn refused(raw: &Raw, wanted: &str) {
    let error = read(&raw.0).unwrap_err().to_string();
    assert!(error.starts_with("test.gguf: ") && !error.contains('\n'), "{error}");
    assert!(error.contains(wanted), "`{error}` does not say `{wanted}`");
}

#[test]
fn what_these_tests_build_is_valid_when_nothing_is_wrong() {
    let raw = Raw::new(2, 1).text(b"key").u32(4).u32(7).tensor("a", &[8], 0, 0).tensor("b", &[4, 2], 0, 32).data(64);
    assert_eq!(read(&raw.0).unwrap().tensors[1].shape, [2, 4]);
}

#[test]
fn no_gguf_file() {
    refused(&Raw(vec![]), "at byte 0: the magic: the file ends at 0");
    refused(&Raw(b"GGU".to_vec()), "the file ends at 3");
    refused(&Raw(b"PK\x03\x04....".to_vec()), "not a GGUF file");
}

#[test]
fn versions() {
    refused(&Raw(b"GGUF".to_vec()).u32(1), "GGUF version 1; only 2 and 3");
    refused(&Raw(b"GGUF".to_vec()).u32(4), "GGUF version 4");
    refused(&Raw(b"GGUF".to_vec()).u32(3u32.swap_bytes()), "big-endian");
    refused(&Raw(b"GGUF".to_vec()).bytes(&[3]), "at byte 4: the version: the file ends at 5");
}

#[test]
fn every_truncation() {
    let raw = Raw::new(1, 1).text(b"key").u32(9).u32(8).u64(2).text(b"a").text(b"bc").tensor("x", &[8], 0, 0).data(32);
    assert!(read(&raw.0).is_ok());
    for len in 0..raw.0.len() {
        refused(&Raw(raw.0[..len].to_vec()), "");
    }
}

#[test]
fn counts_beyond_the_file() {
    refused(&Raw::new(1 << 63, 0), "at byte 8: tensors: 9223372036854775808 elements, but only 8 bytes are left");
    refused(&Raw::new(0, u64::MAX), "metadata pairs");
    refused(&Raw::new(0, 1).u64(1 << 40).data(64), "a metadata key: 1099511627776 bytes");
    refused(&Raw::new(0, 1).text(b"key").u32(8).u64(u64::MAX).data(64), "`key`: 18446744073709551615 bytes");
    for kind in [0, 6, 7, 8, 9, 12] {
        refused(
            &Raw::new(0, 1).text(b"key").u32(9).u32(kind).u64(1 << 61).data(64),
            "at byte 43: `key`: 2305843009213693952 ",
        );
    }
}

#[test]
fn values() {
    refused(&Raw::new(0, 1).text(b"key").u32(13).data(64), "`key`: unknown value type 13");
    refused(&Raw::new(0, 1).text(b"key").u32(9).u32(99).u64(0).data(64), "`key`: unknown type 99 of array elements");
    refused(&Raw::new(0, 1).text(b"key").u32(7).bytes(&[2]).data(64), "`key`: a boolean is 0 or 1, not 2");
    refused(&Raw::new(0, 1).text(b"key").u32(9).u32(7).u64(2).bytes(&[1, 3]).data(64), "at byte 52: `key`: a boolean");
    refused(&Raw::new(0, 1).text(b"k\xff").u32(0).bytes(&[0]), "at byte 24: a metadata key: not UTF-8");
    refused(&Raw::new(0, 1).text(b"key").u32(8).text(b"\xc0\x80"), "`key`: not UTF-8");
    refused(&Raw::new(0, 1).text(b"key").u32(9).u32(8).u64(2).text(b"a").text(b"\xff"), "string 1 is not UTF-8");
    refused(&Raw::new(0, 2).text(b"key").u32(4).u32(1).text(b"key").u32(4).u32(1), "a second metadata key `key`");
}

#[test]
fn nesting() {
    let nested = |depth: u64| (0..depth).fold(Raw::new(0, 1).text(b"key").u32(9), |raw, _| raw.u32(9).u64(1));
    assert!(read(&nested(7).u32(0).u64(0).data(0).0).is_ok());
    refused(&nested(8).u32(0).u64(0).data(0), "nested more than 8 deep");
    refused(&nested(1000).u32(0).u64(0).data(0), "nested more than 8 deep");
}

#[test]
fn alignments() {
    for bad in [0, 24, 1 << 30] {
        let raw = Raw::new(0, 1).text(b"general.alignment").u32(4).u32(bad).data(0);
        refused(&raw, "`general.alignment`: a power of two");
    }
    refused(&Raw::new(0, 1).text(b"general.alignment").u32(8).text(b"32"), "a power of two");
}

#[test]
fn shapes() {
    let one = |sizes: &[u64], kind| Raw::new(1, 0).tensor("x", sizes, kind, 0).data(256);
    refused(&one(&[0], 0), "tensor `x`: an axis of size 0");
    refused(&one(&[4, 0], 0), "an axis of size 0");
    refused(&one(&[1, 1, 1, 1, 1], 0), "5 axes");
    refused(&one(&[1 << 40, 1 << 40], 0), "impossible for f32");
    refused(&one(&[u64::MAX], 0), "tensor `x`");
    refused(&one(&[31], 2), "shape [31] is impossible for q4_0");
    refused(&one(&[31, 3], 2), "shape [3, 31] is impossible for q4_0");
    refused(&one(&[4], 4), "unknown type 4");
    refused(&one(&[4], u32::MAX), "unknown type 4294967295");
}

#[test]
fn places() {
    let two = |a, b, data| Raw::new(2, 0).tensor("a", &[8], 0, a).tensor("b", &[8], 0, b).data(data);
    refused(&two(0, 32, 60), "tensor `b`: its 32 bytes from 96 + 32 reach past the end of the file at 156");
    refused(&two(0, 33, 128), "tensor `b`: its offset 33 is not a multiple of the alignment 32");
    refused(&two(0, 0, 64), "tensor `b`: its bytes 96..128 overlap those of `a`, 96..128");
    refused(&two(0, u64::MAX - 31, 64), "reach past the end");
    refused(&two(0, 32, 65), "the tensors end here, but the file goes on to 161");
    refused(&Raw::new(2, 0).tensor("a", &[8], 0, 0).tensor("a", &[8], 0, 32).data(64), "`a`: a second tensor");
    refused(&Raw::new(1, 0).text(b"\xff").u32(0).u32(0).u64(0).data(32), "a tensor's name: not UTF-8");
}
