//! Sessions that go on, go back and start over, and their states in files.

use std::{fs, ops::ControlFlow, path::PathBuf, rc::Rc};

use selkie::{
    Backend, Error, GenerateOptions, Generated, Model, ModelFiles, OpenOptions, Opened, SamplingParams, SavedState,
    Session, TokenHash, block_on,
    formats::{ByteSource, Checkpoint, MemorySource},
};
use serde_json::json;

/// A dense transformer, recurrent layers, and both in one model.
const MODELS: [&str; 3] = ["llama-gqa/model.gguf", "mamba/model.gguf", "jamba/model.gguf"];

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/hf")).join(name)
}

fn open(name: &str) -> Model {
    let options = OpenOptions { backend: Backend::Cpu, exact: true, threads: Some(1), ..OpenOptions::default() };
    Model::open(&fixture(name), &options).expect(name)
}

fn greedy(max_tokens: usize) -> GenerateOptions {
    let sampling = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
    GenerateOptions { max_tokens, sampling, ignore_eos: true, ..GenerateOptions::default() }
}

fn generate(model: &mut Model, session: &mut Session, prompt: &[u32]) -> Generated {
    model.generate(session, prompt, &greedy(6), &mut |_| ControlFlow::Continue(())).expect("a continuation")
}

fn extend(model: &mut Model, session: &mut Session, more: &[u32]) -> Generated {
    model.extend(session, more, &greedy(6), &mut |_| ControlFlow::Continue(())).expect("a continuation")
}

/// What follows `prompt` where nothing was held.
fn fresh(model: &mut Model, prompt: &[u32]) -> Vec<u32> {
    let mut session = model.session(120).expect("a session");
    generate(model, &mut session, prompt).ids
}

fn prompt(len: u32, salt: u32) -> Vec<u32> {
    (0..len).map(|i| (i * 37 + salt * 11) % 200 + 3).collect()
}

/// Through a file's bytes and back.
fn stored(saved: &SavedState) -> SavedState {
    let bytes = saved.write(vec![]).expect("written");
    SavedState::read("x.state", bytes.into()).expect("read")
}

#[test]
fn a_session_goes_back_as_far_as_it_can_and_else_starts_over() {
    for name in MODELS {
        let mut model = open(name);
        let mut session = model.session(120).expect("a session");
        let long = prompt(60, 1);
        generate(&mut model, &mut session, &long);
        // 65 are held: what the model chose last is not among them.
        assert_eq!((session.len(), session.pending().len()), (65, 1));
        // Recurrent layers remember 32 tokens.
        for (shared, computed) in [(40, [20, 20]), (5, [55, 60])] {
            let mut other = long[..shared].to_vec();
            other.extend(prompt(60 - shared as u32, 2));
            let wanted = fresh(&mut model, &other);
            let recurrent = name != MODELS[0];
            let mut session = session.fork();
            let made = generate(&mut model, &mut session, &other);
            assert_eq!(made.ids, wanted, "{name}: {shared} shared");
            assert_eq!(made.timings.prompt_tokens, computed[usize::from(recurrent)], "{name}: {shared} shared");
        }
        model.clear(&mut session).expect("cleared");
        assert!(session.is_empty() && session.tokens().is_empty() && session.pending().is_empty());
        assert_eq!(generate(&mut model, &mut session, &long).ids, fresh(&mut model, &long), "{name}");
    }
}

#[test]
fn a_saved_state_is_a_value() {
    for name in MODELS {
        let mut model = open(name);
        let mut session = model.session(120).expect("a session");
        generate(&mut model, &mut session, &prompt(40, 3));
        let saved = stored(&model.snapshot(&session).expect("a state"));
        assert_eq!((saved.positions, saved.pending.len()), (45, 1));
        assert_eq!(saved.ids.as_deref(), Some(session.tokens()));
        let first = extend(&mut model, &mut session, &[7]).ids;
        for _ in 0..2 {
            let mut restored = model.restore(&saved, 100).expect("restored");
            assert_eq!((restored.len(), restored.capacity()), (45, 100));
            assert_eq!(extend(&mut model, &mut restored, &[7]).ids, first, "{name}");
        }
        // One that has no pending token gives up its last.
        let mut session = model.session(120).expect("a session");
        model.feed(&mut session, &prompt(40, 3)).expect("fed");
        let saved = model.snapshot(&session).expect("a state");
        assert_eq!((saved.positions, saved.pending.as_slice()), (39, &prompt(40, 3)[39..]));
        assert_eq!((session.len(), session.pending()), (40, &[][..]));
        let mut restored = model.restore(&saved, 100).expect("restored");
        assert_eq!(extend(&mut model, &mut restored, &[]).ids, fresh(&mut model, &prompt(40, 3)), "{name}");
    }
}

#[test]
fn a_state_without_ids_knows_its_tokens_by_their_hash() {
    for name in MODELS {
        let mut model = open(name);
        let mut session = model.session(120).expect("a session");
        let begun = prompt(40, 3);
        model.feed(&mut session, &begun).expect("fed");
        let saved = SavedState { ids: None, ..model.snapshot(&session).expect("a state") };
        let saved = stored(&saved);
        assert_eq!(saved.token_hash, TokenHash::of(&begun[..39]));

        let same = [&begun[..], &prompt(10, 4)].concat();
        let mut other = same.clone();
        other[38] += 1;
        for (text, computed) in [(&same, 11), (&other, 50), (&begun[..30].to_vec(), 30)] {
            let mut restored = model.restore(&saved, 100).expect("restored");
            assert!(restored.tokens().is_empty());
            let made = generate(&mut model, &mut restored, text);
            assert_eq!(made.ids, fresh(&mut model, text), "{name}");
            assert_eq!(made.timings.prompt_tokens, computed, "{name}");
            assert_eq!(restored.tokens(), [text, &made.ids[..5]].concat(), "{name}: its ids are known now");
        }
        // Gone on with and saved again, it is known by the hash of all.
        let mut restored = model.restore(&saved, 100).expect("restored");
        let made = extend(&mut model, &mut restored, &[7, 8]);
        let all = [&begun[..], &[7, 8], &made.ids].concat();
        let again = model.snapshot(&restored).expect("a state");
        assert_eq!((again.token_hash, &again.ids), (TokenHash::of(&all[..all.len() - 1]), &None));
    }
}

#[test]
fn a_prompt_that_was_interrupted_stays() {
    let mut model = open(MODELS[1]);
    let mut session = model.session(2000).expect("a session");
    let long = prompt(1300, 5);
    let stopped = model.extend(&mut session, &long, &greedy(6), &mut |_| ControlFlow::Break(())).expect("stopped");
    assert!(stopped.ids.is_empty());
    assert_eq!([session.tokens(), session.pending()].concat(), long);
    let made = extend(&mut model, &mut session, &[]).ids;
    let mut session = model.session(2000).expect("a session");
    assert_eq!(made, generate(&mut model, &mut session, &long).ids);
}

#[test]
fn texts_are_kept_and_states_of_others_refused() {
    let mut model = open(MODELS[2]);
    let mut session = model.session(120).expect("a session");
    generate(&mut model, &mut session, &prompt(20, 3));
    let mut saved = model.snapshot(&session).expect("a state");
    saved.text = Some(json!({"messages": [], "sea": "海"}));
    let saved = stored(&saved);
    assert_eq!(saved.text, Some(json!({"messages": [], "sea": "海"})));
    // The same state gives the same bytes.
    assert_eq!(stored(&saved).write(vec![]).expect("written"), saved.write(vec![]).expect("written"));

    let refused = |saved: &SavedState| model.restore(saved, 100).err().expect("refused").to_string();
    let adapted = SavedState { adapter: "b1".into(), ..saved.clone() };
    assert!(refused(&adapted).starts_with("x.state: was saved by adapter b1, but "), "{}", refused(&adapted));
    let mut fewer = saved.clone();
    let (gone, _) = fewer.planes.remove(1);
    assert_eq!(refused(&fewer), format!("x.state: `{gone}` is missing"));
    let mut odd = saved.clone();
    odd.planes[0].1.shape.push(1);
    assert!(refused(&odd).contains(", and the model's is ["), "{}", refused(&odd));
    let full = model.restore(&saved, 25).err().expect("refused").to_string();
    assert_eq!(full, "the prompt has 26 tokens, but the context holds 25");

    let unread = |saved: SavedState| {
        let bytes = saved.write(vec![]).expect("written");
        SavedState::read("x.state", bytes.into()).expect_err("refused").to_string()
    };
    let mut ids = saved.ids.clone().expect("ids");
    ids[3] += 1;
    let other_ids = SavedState { ids: Some(ids.clone()), ..saved.clone() };
    assert_eq!(unread(other_ids), "x.state: its ids are not those that `token_hash` was made of");
    ids.pop();
    let fewer_ids = SavedState { ids: Some(ids), ..saved };
    assert_eq!(unread(fewer_ids), "x.state: has 24 ids, but its state holds 25 tokens");
}

#[test]
fn no_file_makes_the_reader_panic() {
    let model = open(MODELS[1]);
    let session = model.session(10).expect("a session");
    let bytes = model.snapshot(&session).expect("a state").write(vec![]).expect("written");
    let header = 8 + u64::from_le_bytes(*bytes.first_chunk().expect("a length")) as usize;
    for at in 0..header {
        for change in [1u8, 0x20, 0x80] {
            let mut bytes = bytes.clone();
            bytes[at] ^= change;
            if let Ok(saved) = SavedState::read("x.state", bytes.into()) {
                // Read as something: then it fits, or is refused in words.
                let _ = model.restore(&saved, 10).map_err(|error| error.to_string());
            }
        }
    }
    for len in (0..bytes.len()).step_by(37) {
        let cut = SavedState::read("x.state", bytes[..len].to_vec().into());
        assert!(cut.expect_err("cut").to_string().starts_with("x.state: is no saved state: "), "{len}");
    }
}

#[test]
fn the_id_is_the_models_alone() {
    let files = |name: &str| ModelFiles::find(&fixture(name), None).expect(name);
    let id = |name: &str| files(name).open().expect(name).model_id().expect(name);
    let name = "llama-gqa/model.gguf";
    // From memory, under another name.
    let bytes = fs::read(fixture(name)).expect(name);
    let source: Rc<dyn ByteSource> = Rc::new(MemorySource::new("somewhere", bytes));
    let checkpoint = block_on(Checkpoint::open(vec![source])).expect(name);
    let in_memory = Opened { files: files(name), checkpoint, config: None, text_files: None };
    assert_eq!(in_memory.model_id().expect("an id"), id(name));
    for backend in [Backend::Cpu, Backend::Reference] {
        let model = Model::open(&fixture(name), &OpenOptions { backend, ..OpenOptions::default() }).expect(name);
        assert_eq!(model.id().expect("an id"), id(name));
    }
    let mut ids: Vec<String> = ["model.gguf", "model-f16.gguf", "model-q8_0.gguf", "model-q4_0.gguf", ""]
        .iter()
        .map(|file| id(&format!("llama-gqa/{file}")))
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5);
}

#[test]
fn states_pass_between_executors() {
    for name in MODELS {
        let mut cpu = open(name);
        let options = OpenOptions { backend: Backend::Reference, ..OpenOptions::default() };
        let mut reference = Model::open(&fixture(name), &options).expect(name);
        let mut session = cpu.session(120).expect("a session");
        cpu.feed(&mut session, &prompt(40, 6)).expect("fed");
        let saved = cpu.snapshot(&session).expect("a state");
        let mut there = reference.restore(&saved, 100).expect("restored");
        assert_eq!(extend(&mut reference, &mut there, &[]).ids, fresh(&mut cpu, &prompt(40, 6)), "{name}");
        // A session itself does not: it belongs to its executor.
        let foreign = reference.feed(&mut session, &[1]).expect_err("foreign");
        assert!(matches!(foreign, Error::Model(selkie::model_spec::Error::ForeignState { .. })), "{foreign}");
    }
}

/// Every model of the fixtures: the files and folders that open as one.
fn every_model() -> Vec<PathBuf> {
    let mut models = vec![];
    for group in ["hf", "mbjs"] {
        for folder in fs::read_dir(fixture("..").join(group)).expect("fixtures") {
            let folder = folder.expect("an entry").path();
            if !folder.is_dir() {
                continue;
            }
            let files: Vec<PathBuf> =
                fs::read_dir(&folder).expect("a folder").map(|file| file.expect("an entry").path()).collect();
            let named = |name: &str| files.iter().any(|file| file.ends_with(name));
            if ["model.safetensors", "model.safetensors.index.json", "model.mbjs"].iter().any(|name| named(name)) {
                models.push(folder);
            }
            models.extend(files.into_iter().filter(|file| file.extension().is_some_and(|e| e == "gguf")));
        }
    }
    models
}

/// Every mixer's state is saved whole: what follows differs by the rounding of saved values to f32 only.
#[test]
fn every_family_goes_on_from_its_file() {
    let models = every_model();
    assert!(models.len() > 100, "only {} models", models.len());
    for path in models {
        let name = path.display();
        let options = OpenOptions { backend: Backend::Reference, ..OpenOptions::default() };
        let mut model = Model::open(&path, &options).unwrap_or_else(|e| panic!("{e}"));
        let ids: Vec<u32> = prompt(12, 1).iter().map(|id| id % 20).collect();
        let mut session = model.session(12).expect("a session");
        model.feed(&mut session, &ids[..7]).unwrap_or_else(|e| panic!("{name}: {e}"));
        let saved = stored(&model.snapshot(&session).expect("a state"));
        assert_eq!((saved.positions, &saved.pending[..]), (6, &ids[6..7]), "{name}");
        let mut restored = model.restore(&saved, 12).unwrap_or_else(|e| panic!("{name}: {e}"));
        let paused = model.feed(&mut restored, &ids[6..]).expect("fed");
        let whole = model.feed(&mut session, &ids[7..]).expect("fed");
        let off = paused.iter().zip(&whole).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off <= 5e-5 && whole.iter().all(|v| v.is_finite()), "{name}: off by {off}");
    }
}
