//! Hybrids by the package's verbs, against what the package computed (`fixtures/mbjs`).

use std::fs;

use selkie::{
    Hybrid, HybridConfig, HybridLayer, HybridSampling, OpenOptions,
    formats::{Checkpoint, MemorySource, mbjs::MbjsOptions},
};
use selkie_suite::{MBJS, MbjsCase, fixtures};
use serde_json::Value;

fn exact() -> OpenOptions {
    OpenOptions { threads: Some(1), exact: true, ..OpenOptions::default() }
}

fn open(name: &str) -> Hybrid {
    Hybrid::open(&fixtures().join("mbjs").join(name).join("model.mbjs"), &exact()).unwrap_or_else(|e| panic!("{e}"))
}

fn file(name: &str, file: &str) -> Option<Vec<u8>> {
    fs::read(fixtures().join("mbjs").join(name).join(file)).ok()
}

fn near(got: &[f32], wanted: &[f32], allowed: f32, what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    assert!(got.iter().zip(wanted).all(|(g, w)| (g - w).abs() <= allowed), "{what}");
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).expect("ids")
}

#[test]
fn logits_and_embeddings() {
    for name in MBJS {
        let (case, mut model) = (MbjsCase::open(name), open(name));
        let (batch, seq_len) = case.batch();
        let got = model.forward(&case.ids(), batch, seq_len).expect("logits");
        let embedding = model.embed(&case.ids()[..seq_len]).expect("an embedding");
        for profile in ["repaired", "reference"] {
            near(&got, &case.values(&format!("logits.{profile}")), case.tolerance(profile), name);
            near(&embedding, &case.values(&format!("embed.{profile}")), case.tolerance("embed"), name);
        }
        let norm: f64 = embedding.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
        assert!((norm - 1.0).abs() < 1e-6, "{name}");
    }
}

#[test]
fn nothing_embeds_as_zeros() {
    assert_eq!(open("m1-long").embed(&[]).expect("an embedding"), [0.0; 16]);
}

#[test]
fn greedy_continuations() {
    let mut compared = 0;
    for name in MBJS {
        let case = MbjsCase::open(name);
        let Some((tokens, prompt)) = case.greedy() else { continue };
        let mut model = open(name);
        let new = tokens.len() - prompt;
        // As the fixture was made, and as people write it.
        for greedy in [
            HybridSampling { temperature: 1e-6, ..HybridSampling::greedy() },
            HybridSampling::greedy(),
            HybridSampling { temperature: 0.0, ..HybridSampling::default() },
            HybridSampling { top_p: 0.0, ..HybridSampling::default() },
        ] {
            assert_eq!(model.generate(&tokens[..prompt], new, &greedy).expect("ids"), tokens, "{name} {greedy:?}");
        }
        compared += 1;
    }
    assert!(compared >= 4, "{compared}");
}

#[test]
fn sampled_continuations() {
    let mut compared = 0;
    for name in MBJS {
        let case = MbjsCase::open(name);
        let generate = &case.expected["generate"];
        let Some(sampled) = generate.get("sampled") else { continue };
        let options = &sampled["options"];
        let number = |key: &str| options[key].as_f64().expect(key) as f32;
        let sampling = HybridSampling {
            temperature: number("temperature"),
            top_k: number("topK") as usize,
            top_p: number("topP"),
            seed: None,
        };
        let uniforms: Vec<f64> = serde_json::from_value(sampled["uniforms"].clone()).expect("uniforms");
        let mut next = uniforms.iter().copied();
        let (prompt, wanted) = (ids(&generate["prompt"]), ids(&sampled["tokens"]["repaired"]));
        let new = generate["maxNewTokens"].as_u64().expect("maxNewTokens") as usize;
        let mut model = open(name);
        let got = model.generate_with(&prompt, new, &sampling, &mut || next.next().expect("a uniform number"));
        assert_eq!(got.expect("ids"), wanted, "{name}");
        // One number a token.
        assert_eq!(next.count(), uniforms.len() - (wanted.len() - prompt.len()), "{name}");
        compared += 1;
    }
    assert_eq!(compared, 1);
}

#[test]
fn seeds_make_the_package_s_files() {
    for name in MBJS {
        let case = MbjsCase::open(name);
        let model = Hybrid::new(&case.config, None, &exact()).expect("a model");
        assert_eq!(model.seed(), case.config.seed());
        let bytes = model.export(MbjsOptions::default()).expect("a file");
        let recorded = &case.about["seeded_init"];
        assert_eq!(bytes.len() as u64, recorded["bytes"].as_u64().expect("bytes"), "{name}");
        let sum = u32::from_le_bytes(*bytes.last_chunk().expect("a checksum"));
        assert_eq!(u64::from(sum), recorded["crc32"].as_u64().expect("crc32"), "{name}");
    }
}

#[test]
fn seeds_are_taken_in_turn() {
    let config = HybridConfig::mamba(16, 8, 1);
    let made = |config: &HybridConfig, seed: Option<u32>| {
        let model = Hybrid::new(&config.config().expect("a configuration"), seed, &exact()).expect("a model");
        (model.seed(), model.export(MbjsOptions::default()).expect("a file"))
    };
    let (seed, bytes) = made(&config.clone().seed(4), None);
    assert_eq!(seed, Some(4));
    assert_eq!(made(&config.clone().seed(5), Some(4)).1, bytes);
    let (one, other) = (made(&config, None), made(&config, None));
    assert!(one.0.is_some() && one.1 != other.1);
    assert_eq!(made(&config, one.0).1, one.1);
}

#[test]
fn parameters_are_named() {
    for name in MBJS {
        let case = MbjsCase::open(name);
        let found = open(name).parameters().expect("parameters");
        let recorded = case.about["parameters"].as_array().expect("parameters");
        assert_eq!(found.len(), recorded.len(), "{name}");
        for (found, recorded) in found.iter().zip(recorded) {
            let shape: Vec<usize> = serde_json::from_value(recorded[1].clone()).expect("a shape");
            assert_eq!((found.name.as_str(), &found.shape), (recorded[0].as_str().expect("a name"), &shape), "{name}");
            assert_eq!(found.values.len(), shape.iter().product::<usize>(), "{name}");
        }
    }
}

#[test]
fn files_go_out_as_they_came_in() {
    for name in MBJS {
        let case = MbjsCase::open(name);
        // A model of other weights, which takes those of the file.
        let mut model = Hybrid::new(&case.config, Some(99), &exact()).expect("a model");
        let (batch, seq_len) = case.batch();
        let before = model.forward(&case.ids(), batch, seq_len).expect("logits");
        let bytes = file(name, "model.mbjs").expect("a file");
        model.import(bytes.clone()).expect("imported");
        assert_eq!(model.seed(), None);
        let after = model.forward(&case.ids(), batch, seq_len).expect("logits");
        near(&after, &case.values("logits.repaired"), case.tolerance("repaired"), name);
        assert_ne!(before, after, "{name}");

        let about = &case.about["file"];
        let version = about["version"].as_u64().expect("a version") as u32;
        let trailer = about["crc_trailer"].as_bool().expect("a switch");
        assert_eq!(model.export(MbjsOptions { version, trailer }).expect("a file"), bytes, "{name}");
        let bare = model.export(MbjsOptions { version, trailer: false }).expect("a file");
        assert_eq!(bare, bytes[..bare.len()], "{name}");
        if let (2, Some(half)) = (version, file(name, "model.v3.mbjs")) {
            assert_eq!(model.export(MbjsOptions::F16).expect("a file"), half, "{name}");
            model.import(half.clone()).expect("imported");
            assert_eq!(model.export(MbjsOptions::F16).expect("a file"), half, "{name}");
        }
    }
}

#[test]
fn what_is_imported_has_to_fit() {
    let mut model = HybridConfig::mamba(16, 8, 2).seed(1).build(&exact()).expect("a model");
    let before = model.forward(&[1, 2], 1, 2).expect("logits");
    let other = |config: HybridConfig| {
        config.seed(1).build(&exact()).expect("a model").export(MbjsOptions::default()).expect("a file")
    };
    for (file, wanted) in [
        (b"PK\x03\x04 a zip file".to_vec(), "not an MBJS file"),
        (other(HybridConfig::mamba(16, 8, 3)), "3 layers"),
        (other(HybridConfig::new(16, 8, [HybridLayer::mamba1(), HybridLayer::mamba2()])), "layer 1"),
        (other(HybridConfig::mamba(16, 8, 2).d_state(4)), "layer0.wXProj"),
    ] {
        let error = model.import(file).expect_err(wanted).to_string();
        assert!(error.contains(wanted), "{error}");
    }
    let mut damaged = model.export(MbjsOptions::default()).expect("a file");
    damaged[100] ^= 1;
    assert!(model.import(damaged).expect_err("a wrong sum").to_string().contains("checksum"));
    assert_eq!(model.forward(&[1, 2], 1, 2).expect("logits"), before);
}

#[test]
fn values_that_f16_does_not_hold() {
    let model = HybridConfig::mamba(4, 4, 1).seed(1).build(&exact()).expect("a model");
    let mut bytes = model.export(MbjsOptions { version: 2, trailer: false }).expect("a file");
    // The last value of the last parameter.
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&65536f32.to_le_bytes());
    let mut model = model;
    model.import(bytes).expect("imported");
    let error = model.export(MbjsOptions::F16).expect_err("too large").to_string();
    assert!(error.contains("final_norm") && error.contains("65536"), "{error}");
}

#[test]
fn what_is_asked_for_has_to_make_sense() {
    let mut model = HybridConfig::mamba(16, 8, 1).seed(1).build(&exact()).expect("a model");
    let error = |result: selkie::Result<Vec<f32>>| result.expect_err("an error").to_string();
    assert!(error(model.forward(&[1, 2, 3], 2, 2)).contains("3 ids, but 2 sequences of 2"));
    assert!(error(model.forward(&[], 0, 5)).contains("empty"));
    assert!(error(model.forward(&[16], 1, 1)).contains("16 is outside the vocabulary of 16"));
    assert!(error(model.embed(&[99])).contains("99"));
    let greedy = HybridSampling::greedy();
    for (prompt, sampling, wanted) in [
        (vec![], greedy.clone(), "the prompt is empty"),
        (vec![16], greedy.clone(), "16 is outside"),
        (vec![1], HybridSampling { top_k: 0, ..HybridSampling::default() }, "top-k is 0"),
        (vec![1], HybridSampling { temperature: f32::NAN, ..HybridSampling::default() }, "must be numbers"),
    ] {
        let error = model.generate(&prompt, 3, &sampling).expect_err(wanted).to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn the_end_of_a_text_is_its_last_token() {
    let config = HybridConfig::mamba(16, 8, 2).seed(1);
    let greedy = HybridSampling::greedy();
    let free = config.build(&exact()).expect("a model").generate(&[1], 6, &greedy).expect("ids");
    assert_eq!(free.len(), 7);
    let end = free[3];
    let first = 1 + free[1..].iter().position(|&id| id == end).expect("it came");
    let made = config.eos_id(end).build(&exact()).expect("a model").generate(&[1], 6, &greedy).expect("ids");
    assert_eq!(made, free[..=first]);
}

#[test]
fn a_seed_chooses_the_same_tokens() {
    let mut model = HybridConfig::mamba(64, 16, 2).seed(1).build(&exact()).expect("a model");
    let mut made = |seed| {
        let sampling = HybridSampling { seed, ..HybridSampling::default() };
        model.generate(&[1, 2], 24, &sampling).expect("ids")
    };
    assert_eq!(made(Some(5)), made(Some(5)));
    assert_ne!(made(Some(5)), made(Some(6)));
    assert_ne!(made(None), made(None));
}

/// Models in memory know no folder in which tokenizers lie.
#[test]
fn models_in_memory_have_no_tokenizer() {
    let mut model = HybridConfig::mamba(16, 8, 1).build(&exact()).expect("a model");
    assert!(model.model().text().tokenizer_if_any().expect("no error").is_none());
}

/// A file that only looks as if it were one of MBJS.
#[test]
fn other_models_are_no_hybrids() {
    let path = fixtures().join("hf/llama-gqa/model.gguf");
    let error = Hybrid::open(&path, &exact()).err().expect("an error").to_string();
    assert!(error.contains("llama") && error.contains("not an MBJS model"), "{error}");
    let source = MemorySource::new("x", file("m1-init", "model.mbjs").expect("a file"));
    let error = selkie::block_on(Checkpoint::open(vec![std::rc::Rc::new(source)])).err().expect("an error").to_string();
    assert!(error.contains("read with its configuration"), "{error}");
}
