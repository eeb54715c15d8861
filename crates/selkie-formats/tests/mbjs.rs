//! MBJS files: read, written, and wrong in one way each.

mod common;

use common::{MbjsCase, fixture, fixtures_of_mbjs, now, source};
use proptest::{collection::vec, prelude::*};
use selkie_formats::{
    ByteSource, Checkpoint, DType, Error, LocalFuture, MemorySource, Result, Tensor, TensorInfo, TensorSpec,
    gguf::{GgufOptions, GgufWriter, Metadata, Value as GgufValue},
    mbjs::{self, Config, MbjsFile, MbjsOptions, MbjsWriter, truncate_to_f16},
    quant,
    safetensors::SafetensorsWriter,
};
use serde_json::{Value, json};

const V1: MbjsOptions = MbjsOptions { version: 1, trailer: true };
const V2: MbjsOptions = MbjsOptions { version: 2, trailer: true };
const V3: MbjsOptions = MbjsOptions { version: 3, trailer: true };

fn open(bytes: Vec<u8>, config: &Config) -> Result<Checkpoint> {
    now(Checkpoint::open_mbjs(source("model.mbjs", bytes), config))
}

fn rewritten(bytes: &[u8], config: &Config, options: MbjsOptions) -> Vec<u8> {
    now(mbjs::write(Vec::new(), config, options, &open(bytes.to_vec(), config).unwrap())).unwrap()
}

/// A file of fresh weights.
fn fresh(config: &Config, seed: u32, options: MbjsOptions) -> Vec<u8> {
    let mut writer = MbjsWriter::new(Vec::new(), config, options).unwrap();
    for parameter in mbjs::initial(config, seed) {
        writer.write(&parameter.unwrap().1).unwrap();
    }
    writer.finish().unwrap()
}

fn case(name: &str) -> MbjsCase {
    fixtures_of_mbjs().into_iter().find(|case| case.name == name).unwrap()
}

/// The two layers that most tests of errors are about.
fn small() -> Config {
    let layers = json!([{"type": "mamba2"}, {"type": "attention", "config": {"nHeads": 2}}]);
    let json = json!({"vocabSize": 6, "dModel": 4, "numLayers": 2, "nHeads": 2, "dState": 3, "layers": layers});
    Config::from_json("config.json", json).unwrap()
}

/// `small` with something else in it.
fn small_but(key: &str, value: Value) -> Config {
    let mut json = small().json().clone();
    json.insert(key.to_owned(), value);
    Config::from_json("config.json", json.into()).unwrap()
}

fn set_u32(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

#[track_caller]
fn refused(bytes: Vec<u8>, config: &Config, wanted: &str) {
    let error = open(bytes, config).err().unwrap().to_string();
    assert_eq!(error, format!("model.mbjs: {wanted}"));
}

#[test]
fn fresh_weights_are_the_package_s() {
    for case in fixtures_of_mbjs() {
        let seed = case.config.seed().unwrap();
        let bytes = fresh(&case.config, seed, V2);
        let recorded = &case.json["seeded_init"];
        assert_eq!(bytes.len() as u64, recorded["bytes"].as_u64().unwrap(), "{}", case.name);
        let sum = u32::from_le_bytes(*bytes.last_chunk().unwrap());
        assert_eq!(u64::from(sum), recorded["crc32"].as_u64().unwrap(), "{}", case.name);
        let checkpoint = Checkpoint::fresh_mbjs(&case.config, seed).unwrap();
        assert!(now(mbjs::write(Vec::new(), &case.config, V2, &checkpoint)).unwrap() == bytes, "{}", case.name);
    }
    // Cases whose file holds just these weights, one of them in f16.
    for (name, options) in [("m1-init", V2), ("m2-init", V2), ("m3-init", V2), ("hy-all-init-v3", V3)] {
        let case = case(name);
        assert!(
            fresh(&case.config, case.config.seed().unwrap(), options) == case.file("model.mbjs").unwrap(),
            "{name}"
        );
    }
}

#[test]
fn files_come_back_byte_for_byte() {
    for case in fixtures_of_mbjs() {
        let bytes = case.file("model.mbjs").unwrap();
        let about = &case.json["file"];
        let (version, trailer) = (about["version"].as_u64().unwrap() as u32, about["crc_trailer"].as_bool().unwrap());
        let file = now(MbjsFile::read(&MemorySource::new("model.mbjs", bytes.clone()), &case.config)).unwrap();
        assert_eq!((file.version, file.trailer), (version, trailer), "{}", case.name);
        assert!(rewritten(&bytes, &case.config, MbjsOptions { version, trailer }) == bytes, "{}", case.name);

        let without = rewritten(&bytes, &case.config, MbjsOptions { version, trailer: false });
        let with = rewritten(&bytes, &case.config, MbjsOptions { version, trailer: true });
        assert_eq!(with.len(), without.len() + 8);
        assert!(with.starts_with(&without) && without == bytes[..without.len()], "{}", case.name);
    }
}

#[test]
fn f32_files_become_the_package_s_f16_files() {
    let mut compared = 0;
    for case in fixtures_of_mbjs() {
        let model = case.file("model.mbjs");
        let pairs = [(model.clone(), case.file("model.v3.mbjs")), (case.file("model.v2.mbjs"), model)];
        for (full, half) in pairs.into_iter().filter_map(|(full, half)| full.zip(half)) {
            assert!(rewritten(&full, &case.config, V3) == half, "{}", case.name);
            compared += 1;
        }
    }
    assert_eq!(compared, 3);
}

#[test]
fn version_1_has_no_types_of_layers() {
    let case = case("m1-v1-file");
    let one = case.file("model.mbjs").unwrap();
    let two = rewritten(&one, &case.config, V2);
    // Two layers of type 0, padded to 4 bytes.
    assert_eq!(two[4..16], [2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(one[4..8], [1, 0, 0, 0]);
    assert!(one[8..] == two[16..two.len() - 8]);
    assert!(rewritten(&two, &case.config, MbjsOptions { version: 1, trailer: false }) == one);
    let sums = rewritten(&two, &case.config, V1);
    assert!(sums[..one.len()] == one && &sums[one.len()..][..4] == b"EVCR");
}

#[test]
fn tensors_lie_in_the_file() {
    let case = case("hy-all-init-v3");
    let checkpoint = open(case.file("model.mbjs").unwrap(), &case.config).unwrap();
    assert_eq!(checkpoint.mbjs.as_ref(), Some(&case.config));
    let names: Vec<_> = checkpoint.tensors().iter().map(|info| info.name.as_str()).collect();
    assert_eq!((names[0], names[1], names[names.len() - 1]), ("embedding", "layer0.wInProj", "final_norm"));
    let info = checkpoint.need("layer2.A_log").unwrap();
    assert_eq!((info.dtype, &info.shape[..]), (DType::F16, &[4, 2][..]));
    // (0, 2·pi·h/4), rounded toward zero.
    let a_log = now(checkpoint.load("layer2.A_log")).unwrap().to_f32().unwrap();
    assert_eq!(a_log, [0.0, 0.0, 0.0, 1.570_312_5, 0.0, 3.140_625, 0.0, 4.710_937_5]);
    let norm = now(checkpoint.load("final_norm")).unwrap().to_f32().unwrap();
    assert_eq!(norm, [1.0; 32]);
}

#[test]
fn an_odd_parameter_leaves_the_next_between_words() {
    let config = Config::parse("config.json", br#"{"vocabSize": 5, "dModel": 3, "numLayers": 1}"#).unwrap();
    let bytes = fresh(&config, 3, MbjsOptions { version: 3, trailer: false });
    assert_eq!(bytes.len() % 4, 2);
    let checkpoint = open(bytes.clone(), &config).unwrap();
    assert_eq!(checkpoint.need("layer0.wInProj").unwrap().range.start % 4, 2);
    let (_, values) = mbjs::initial(&config, 3).nth(1).unwrap().unwrap();
    let rounded: Vec<f32> = values.iter().map(|value| quant::f16_to_f32(truncate_to_f16(*value))).collect();
    assert_eq!(now(checkpoint.load("layer0.wInProj")).unwrap().to_f32().unwrap(), rounded);
    assert!(rewritten(&bytes, &config, V3)[..bytes.len()] == bytes);
}

#[test]
fn half_precision_is_the_package_s() {
    let vectors: Value = serde_json::from_slice(&fixture("mbjs/_vectors/numeric.json")).unwrap();
    let column = |name: &str| {
        let numbers = vectors["fp16"][name].as_array().unwrap().iter();
        numbers.map(|number| number.as_u64().unwrap() as u32).collect::<Vec<_>>()
    };
    let (given, halves, back) = (column("in_bits"), column("half"), column("back_bits"));
    assert_eq!(given.len(), 32);
    for ((given, half), back) in given.into_iter().zip(halves).zip(back) {
        assert_eq!(u32::from(truncate_to_f16(f32::from_bits(given))), half, "{given:#x}");
        let found = quant::f16_to_f32(half as u16);
        // The package takes a negative NaN for an infinity.
        if half == 0xfe00 { assert!(found.is_nan()) } else { assert_eq!(found.to_bits(), back, "{half:#x}") }
    }
    for bits in 0..=u16::MAX {
        let value = quant::f16_to_f32(bits);
        let nan = bits & 0x8000 | 0x7e00;
        assert_eq!(truncate_to_f16(value), if value.is_nan() { nan } else { bits });
    }
}

#[test]
fn checksums_are_the_package_s() {
    // A file of which nothing but the sum is right fails for the next reason.
    let vectors: Value = serde_json::from_slice(&fixture("mbjs/_vectors/numeric.json")).unwrap();
    for row in vectors["crc32"].as_array().unwrap() {
        let (text, sum) = (row[0].as_str().unwrap(), row[1].as_u64().unwrap() as u32);
        let file = [text.as_bytes(), b"EVCR", &sum.to_le_bytes()].concat();
        let len = file.len();
        refused(file.clone(), &small(), &format!("at byte 0: not an MBJS file ({len} bytes)"));
        let mut wrong = file;
        set_u32(&mut wrong, len - 4, sum ^ 1);
        let what = format!("the file's checksum is {:08x}, but its bytes give {sum:08x}: it is damaged", sum ^ 1);
        refused(wrong, &small(), &format!("at byte {}: {what}", text.len()));
    }
}

#[test]
fn damage_is_noticed_first() {
    let (good, config) = (fresh(&small(), 1, V2), small());
    assert!(open(good.clone(), &config).is_ok());
    for at in [0, 4, 8, 12, 16, good.len() / 2, good.len() - 9] {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        let error = open(bytes, &config).err().unwrap().to_string();
        assert!(error.contains("checksum") && error.contains("damaged"), "{at}: {error}");
    }
}

/// A source that counts what is asked of it.
struct Counted(MemorySource, std::cell::RefCell<Vec<u64>>);

impl ByteSource for Counted {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn read(&self, range: std::ops::Range<u64>) -> LocalFuture<'_, Result<bytes::Bytes>> {
        self.1.borrow_mut().push(range.end - range.start);
        self.0.read(range)
    }
}

#[test]
fn sums_go_over_the_file_in_pieces() {
    let config = Config::parse("c", br#"{"vocabSize": 40000, "dModel": 32, "numLayers": 1}"#).unwrap();
    let read = |options| {
        let bytes = fresh(&config, 1, options);
        let len = bytes.len() as u64;
        let source = Counted(MemorySource::new("model.mbjs", bytes), Default::default());
        now(MbjsFile::read(&source, &config)).unwrap();
        (len, source.1.into_inner())
    };
    let (len, sizes) = read(V2);
    assert!(len > 4 << 20 && sizes.iter().all(|size| *size <= 4 << 20), "{sizes:?}");
    assert!(sizes.iter().sum::<u64>() < len + 200);
    // Without a sum the values are not touched.
    assert!(read(MbjsOptions { trailer: false, ..V2 }).1.iter().sum::<u64>() < 200);
}

#[test]
fn what_follows_the_data_is_ignored() {
    let mut bytes = fresh(&small(), 1, MbjsOptions { trailer: false, ..V2 });
    bytes.extend([7; 21]);
    let file = now(MbjsFile::read(&MemorySource::new("model.mbjs", bytes.clone()), &small())).unwrap();
    assert_eq!((file.trailer, file.tensors.last().unwrap().range.end), (false, bytes.len() as u64 - 21));
}

#[test]
fn malformed_files() {
    let config = small();
    let good = fresh(&config, 1, MbjsOptions { trailer: false, ..V2 });
    let with = |at: usize, number: u32| {
        let mut bytes = good.clone();
        set_u32(&mut bytes, at, number);
        bytes
    };
    refused(vec![], &config, "at byte 0: not an MBJS file (0 bytes)");
    refused(b"GGUF\x03\0\0\0".to_vec(), &config, "at byte 0: not an MBJS file (8 bytes)");
    refused(b"MBJS\x02\0\0\0".to_vec(), &config, "at byte 0: not an MBJS file (8 bytes)");
    refused(with(4, 0), &config, "at byte 4: MBJS version 0; only 1, 2 and 3 are known");
    refused(with(4, 4), &config, "at byte 4: MBJS version 4; only 1, 2 and 3 are known");
    refused(with(8, 3), &config, "at byte 8: 3 layers, but config.json has 2");
    refused(with(8, u32::MAX), &config, "at byte 8: 4294967295 layers, but config.json has 2");
    refused(
        with(12, 0x0301),
        &small_but("layers", json!([{"type": "mamba2"}, {"type": "mamba3"}])),
        "at byte 13: layer 1 is attention, but config.json says mamba3",
    );
    refused(with(12, 0x0302), &config, "at byte 12: layer 0 is mamba3, but config.json says mamba2");
    refused(
        with(12, 0x0901),
        &config,
        "at byte 13: layer 1 is mamba1 (by its unknown type 9), but config.json says attention",
    );
    // What lies behind the types is not looked at.
    assert!(open(with(12, 0xffff_0301), &config).is_ok());
    refused(with(16, 15), &config, "at byte 16: 15 parameters, but config.json has 16");
    refused(with(16, u32::MAX), &config, "at byte 16: 4294967295 parameters, but config.json has 16");
    refused(with(24, 5), &config, "tensor `layer0.wInProj`: 5 values, but config.json makes it [16, 4], 64 values");

    for (len, what) in [
        (2, "at byte 0: not an MBJS file (2 bytes)"),
        (7, "at byte 4: the file ends within the version"),
        (10, "at byte 8: the file ends within the number of layers"),
        (13, "at byte 12: the file ends within the types of the layers"),
        (18, "at byte 16: the file ends within the number of parameters"),
        (83, "at byte 16: 16 parameters, but the file ends at 83"),
        (84, "tensor `embedding`: its bytes are 84..180, but the file's data ends at 84"),
        (good.len() - 1, "tensor `final_norm`: its bytes are 1252..1268, but the file's data ends at 1267"),
    ] {
        refused(good[..len].to_vec(), &config, what);
    }
    // The checksum is not data.
    let mut cut = good[..good.len() - 8].to_vec();
    let mut sum = crc32(&cut);
    cut.extend(b"EVCR");
    cut.append(&mut sum);
    refused(cut, &config, "tensor `final_norm`: its bytes are 1252..1268, but the file's data ends at 1260");

    let error = now(Checkpoint::open(vec![source("model.mbjs", good)])).err().unwrap().to_string();
    assert_eq!(error, "model.mbjs: at byte 0: an MBJS file, which is read with its configuration");
}

/// CRC-32 by its definition, so that it does not check itself.
fn crc32(bytes: &[u8]) -> Vec<u8> {
    let step = |sum: u32| sum >> 1 ^ (0xedb8_8320 & (sum & 1).wrapping_neg());
    let sum = bytes.iter().fold(u32::MAX, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum)));
    (!sum).to_le_bytes().to_vec()
}

#[test]
fn files_and_configurations_that_disagree() {
    let bytes = fresh(&small(), 1, V2);
    let config = small_but("layers", json!([{"type": "mamba2"}, {"type": "attention", "config": {"hasFfn": true}}]));
    refused(
        bytes.clone(),
        &config,
        "at byte 16: 16 parameters, but config.json has 20; the first that differs is \
        `layer1.wFfn1`: 4 values, but config.json makes it [16, 4], 64 values",
    );
}

#[test]
fn what_cannot_be_written() {
    let config = small();
    let new = |version| {
        let options = MbjsOptions { version, trailer: true };
        MbjsWriter::new(Vec::new(), &config, options).err().unwrap().to_string()
    };
    assert_eq!(new(1), "writing: MBJS version 1 has only layers of mamba1, but layer 0 is mamba2");
    assert_eq!(new(4), "writing: MBJS version 4 cannot be written");

    let total: usize = config.parameters().iter().map(mbjs::Parameter::elements).sum();
    let mut writer = MbjsWriter::new(Vec::new(), &config, V2).unwrap();
    let error = writer.write(&vec![0.5; total + 3]).unwrap_err().to_string();
    assert_eq!(error, "writing: 12 bytes more than the tensors take");
    let mut writer = MbjsWriter::new(Vec::new(), &config, V2).unwrap();
    writer.write(&vec![0.5; total - 1]).unwrap();
    let error = writer.finish().err().unwrap().to_string();
    assert_eq!(error, "writing: tensor `final_norm`: only 12 of 16 bytes were given");

    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("no space left"))
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let error = MbjsWriter::new(Full, &config, V2).err().unwrap().to_string();
    assert_eq!(error, "writing: no space left");
}

#[test]
fn values_that_f16_does_not_hold_are_named() {
    let config = small();
    let parameters = config.parameters();
    let values = |parameter: &mbjs::Parameter, value| {
        let mut values = vec![0.0; parameter.elements()];
        if parameter.name == "layer0.bConv" {
            values[3] = value;
        }
        values
    };
    let write = |value: f32, options| {
        let mut writer = MbjsWriter::new(Vec::new(), &config, options)?;
        // One piece, so that the parameter is found in the middle of it.
        let all: Vec<f32> = parameters.iter().flat_map(|parameter| values(parameter, value)).collect();
        writer.write(&all[..100])?;
        writer.write(&all[100..])?;
        writer.finish()
    };
    for value in [65536.0, -65536.0, f32::MAX] {
        let error = write(value, V3).unwrap_err().to_string();
        let what = format!("parameter `layer0.bConv`: value 3 is {value}, but f16 ends at 65504");
        assert_eq!(error, format!("writing: {what}"));
        assert!(write(value, V2).is_ok());
    }
    for (value, back) in [(65535.0, 65504.0), (f32::INFINITY, f32::INFINITY), (f32::NEG_INFINITY, f32::NEG_INFINITY)] {
        let checkpoint = open(write(value, V3).unwrap(), &config).unwrap();
        assert_eq!(now(checkpoint.load("layer0.bConv")).unwrap().to_f32().unwrap()[3], back);
    }
    let checkpoint = open(write(f32::NAN, V3).unwrap(), &config).unwrap();
    assert!(now(checkpoint.load("layer0.bConv")).unwrap().to_f32().unwrap()[3].is_nan());
}

#[test]
fn a_checkpoint_of_another_shape_is_not_written() {
    let config = small();
    let whole = Checkpoint::fresh_mbjs(&config, 1).unwrap();
    let write = |tensors: Vec<TensorInfo>| {
        let part = Checkpoint::from_parts(whole.sources.clone(), tensors).unwrap();
        now(mbjs::write(Vec::new(), &config, V2, &part)).err().unwrap().to_string()
    };
    let mut tensors = whole.tensors().to_vec();
    tensors[1].shape = vec![4, 16];
    assert_eq!(
        write(tensors),
        "config.json: tensor `layer0.wInProj`: its shape is [4, 16], but config.json makes it [16, 4]"
    );
    let tensors = whole.tensors()[1..].to_vec();
    assert_eq!(write(tensors), "config.json: tensor `embedding`: missing");
    let mut tensors = whole.tensors().to_vec();
    tensors[0].dtype = DType::I32;
    assert!(write(tensors).contains("tensor `embedding`: i32 is not a type of weights"));
}

/// A layer of any kind with small sizes.
fn layer() -> impl Strategy<Value = Value> {
    let sizes = (1usize..5, 1usize..4, 1usize..4, 1usize..3);
    let kind = proptest::sample::select(vec!["mamba1", "mamba2", "mamba3", "attention"]);
    (kind, sizes, any::<bool>()).prop_map(|(kind, (d_state, d_conv, rank, heads), ffn)| {
        json!({"type": kind, "config": {"dState": d_state, "dConv": d_conv, "dtRank": rank, "nHeads": heads,
            "nGroups": heads.min(rank), "hasFfn": ffn, "ffnMult": rank}})
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_schedule_comes_back(
        layers in vec(layer(), 1..6),
        (vocab, half_width) in (1usize..7, 1usize..4),
        bits in vec(any::<u32>(), 64),
        version in 2u32..=3,
        trailer: bool,
        pieces in vec(1usize..200, 1..5),
    ) {
        let json = json!({"vocabSize": vocab, "dModel": 2 * half_width, "numLayers": layers.len(), "layers": layers});
        let config = Config::from_json("config.json", json).unwrap();
        let options = MbjsOptions { version, trailer };
        // Any bits in f32; in f16 what it can hold.
        let value = |at: usize| match bits[at % bits.len()].rotate_left(at as u32) {
            bits if version == 2 => f32::from_bits(bits),
            bits => quant::f16_to_f32(bits as u16 & 0xbfff),
        };
        let total: usize = config.parameters().iter().map(mbjs::Parameter::elements).sum();
        let values: Vec<f32> = (0..total).map(value).collect();

        let mut writer = MbjsWriter::new(Vec::new(), &config, options).unwrap();
        let mut rest = &values[..];
        for piece in pieces.iter().cycle() {
            let (now, later) = rest.split_at(rest.len().min(*piece));
            writer.write(now).unwrap();
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        let bytes = writer.finish().unwrap();
        prop_assert_eq!(&bytes, &rewritten(&bytes, &config, options));

        let checkpoint = open(bytes, &config).unwrap();
        let read = |info: &TensorInfo| now(checkpoint.read(info)).as_ref().map(Tensor::to_f32).unwrap().unwrap();
        let back: Vec<u32> = checkpoint.tensors().iter().flat_map(read).map(f32::to_bits).collect();
        prop_assert_eq!(back, values.iter().map(|value| value.to_bits()).collect::<Vec<_>>());
        let shapes: Vec<_> = checkpoint.tensors().iter().map(|info| (info.name.clone(), info.shape.clone())).collect();
        let wanted: Vec<_> = config.parameters().into_iter().map(|parameter| (parameter.name, parameter.shape)).collect();
        prop_assert_eq!(shapes, wanted);
    }

    #[test]
    fn any_bytes_are_refused_in_a_line_or_read(
        at in vec((0usize..200, any::<u8>()), 1..4),
        cut in 0usize..1200,
    ) {
        let mut bytes = fresh(&small(), 1, MbjsOptions { trailer: false, ..V2 });
        for (at, byte) in at {
            bytes[at] = byte;
        }
        bytes.truncate(cut);
        let len = bytes.len() as u64;
        match now(MbjsFile::read(&MemorySource::new("model.mbjs", bytes), &small())) {
            Ok(file) => prop_assert!(file.tensors.iter().all(|info| info.range.end <= len)),
            Err(error) => {
                let line = error.to_string();
                prop_assert!(line.starts_with("model.mbjs: ") && !line.contains('\n'), "{}", line);
                let about_the_file = matches!(error, Error::Header { .. } | Error::Tensor { .. });
                prop_assert!(about_the_file, "{}", line);
            }
        }
    }
}

/// All tensors as another kind of file.
fn contained(checkpoint: &Checkpoint, gguf: bool) -> Vec<u8> {
    let specs: Vec<TensorSpec> = checkpoint.tensors().iter().map(TensorSpec::from).collect();
    let bytes = checkpoint.tensors().iter().map(|info| now(checkpoint.read(info)).unwrap().bytes);
    let (config, options) = (checkpoint.mbjs.as_ref().unwrap(), checkpoint.mbjs_options);
    if gguf {
        let metadata = mbjs::gguf_metadata(config, options);
        let mut writer = GgufWriter::new(Vec::new(), GgufOptions::default(), &metadata, &specs).unwrap();
        bytes.for_each(|bytes| writer.write(&bytes).unwrap());
        writer.finish().unwrap()
    } else {
        let notes = mbjs::safetensors_notes(config, options);
        let mut writer = SafetensorsWriter::new(Vec::new(), &notes, &specs).unwrap();
        bytes.for_each(|bytes| writer.write(&bytes).unwrap());
        writer.finish().unwrap()
    }
}

#[test]
fn other_files_hold_all_of_it() {
    for case in fixtures_of_mbjs() {
        for name in ["model.mbjs", "model.v2.mbjs", "model.v3.mbjs"] {
            let Some(bytes) = case.file(name) else { continue };
            let checkpoint = open(bytes.clone(), &case.config).unwrap();
            for gguf in [true, false] {
                let there = now(Checkpoint::open(vec![source("other", contained(&checkpoint, gguf))])).unwrap();
                let config = there.mbjs.as_ref().unwrap();
                assert_eq!(config.json(), case.config.json());
                let back = now(mbjs::write(Vec::new(), config, there.mbjs_options, &there)).unwrap();
                assert!(back == bytes, "{} {name}, GGUF: {gguf}", case.name);
            }
        }
    }
}

/// Whatever bits the values have.
#[test]
fn numbers_that_are_none_come_back() {
    let config = small();
    for options in [V2, V3] {
        let mut bytes = fresh(&config, 1, MbjsOptions { trailer: false, ..options });
        // Infinities, and NaNs of every kind, in the embedding.
        let start = 20 + 4 * config.parameters().len();
        let odd: &[u8] = if options == V2 {
            &[1, 0, 0x80, 0x7f, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x80, 0xff]
        } else {
            &[1, 0x7c, 0xff, 0xff, 0, 0xfc]
        };
        bytes[start..start + odd.len()].copy_from_slice(odd);
        let checkpoint = open(bytes.clone(), &config).unwrap();
        let there = now(Checkpoint::open(vec![source("other", contained(&checkpoint, true))])).unwrap();
        assert_eq!(there.mbjs_options, MbjsOptions { trailer: false, ..options });
        assert!(now(mbjs::write(Vec::new(), &config, there.mbjs_options, &there)).unwrap() == bytes);
    }
}

#[test]
fn other_files_that_hold_less() {
    let config = small();
    let checkpoint = Checkpoint::fresh_mbjs(&config, 1).unwrap();
    let specs: Vec<TensorSpec> = checkpoint.tensors().iter().map(TensorSpec::from).collect();
    let refused = |metadata: &Metadata| {
        let mut writer = GgufWriter::new(Vec::new(), GgufOptions::default(), metadata, &specs).unwrap();
        for info in checkpoint.tensors() {
            writer.write(&now(checkpoint.read(info)).unwrap().bytes).unwrap();
        }
        now(Checkpoint::open(vec![source("x.gguf", writer.finish().unwrap())])).err().map(|error| error.to_string())
    };
    let whole = mbjs::gguf_metadata(&config, V2);
    assert_eq!(refused(&whole), None);
    for (key, value, wanted) in [
        ("mbjs.config", None, "x.gguf: `mbjs.config`: missing"),
        ("mbjs.config", Some(GgufValue::U8(1)), "x.gguf: `mbjs.config`: a string wanted, but the value is u8"),
        ("mbjs.config", Some(GgufValue::String("{}".into())), "x.gguf: mbjs.config: `vocabSize`: missing"),
        ("mbjs.version", Some(GgufValue::U32(4)), "x.gguf: `mbjs.version`: 4 is not known"),
        ("mbjs.trailer", Some(GgufValue::U32(1)), "x.gguf: `mbjs.trailer`: a boolean wanted, but the value is u32"),
    ] {
        let mut metadata = whole.clone();
        match value {
            Some(value) => metadata.set(key, value),
            None => metadata.remove(key),
        };
        assert_eq!(refused(&metadata).as_deref(), Some(wanted), "{key}");
    }
}
