//! MBJS configurations and fresh weights, held to what the package itself made of them.

mod common;

use common::{fixture, fixtures_of_mbjs};
use selkie_formats::mbjs::{AttentionConfig, Config, LayerConfig, LayerKind, Lcg, Mamba1Config, SsdConfig, seed_of};
use serde_json::{Value, json};

fn config(json: Value) -> selkie_formats::Result<Config> {
    Config::from_json("config.json", json)
}

/// A configuration of two layers with `more` settings.
fn with(more: Value) -> Value {
    let mut json = json!({"vocabSize": 10, "dModel": 32, "numLayers": 2});
    json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json
}

#[track_caller]
fn refused(json: Value, wanted: &str) {
    let error = config(json).unwrap_err().to_string();
    assert_eq!(error, format!("config.json: {wanted}"));
}

#[test]
fn parameters_are_the_package_s() {
    for case in fixtures_of_mbjs() {
        let parameters = case.config.parameters().into_iter();
        let names: Vec<_> = parameters.map(|parameter| json!([parameter.name, parameter.shape])).collect();
        assert_eq!(Value::from(names), case.json["parameters"], "{}", case.name);
        assert_eq!(case.config.seed().map(u64::from), case.json["seed"].as_u64());
        assert_eq!(Value::Object(case.config.json().clone()), case.json["model"]);
    }
}

#[test]
fn a_configuration_comes_back_from_its_json() {
    for case in fixtures_of_mbjs() {
        assert!(Config::is_in(&case.json));
        let text = serde_json::to_string(case.config.json()).unwrap();
        let again = Config::parse(case.config.name(), text.as_bytes()).unwrap();
        assert_eq!(again, case.config);
        assert_eq!(serde_json::to_string(again.json()).unwrap(), text);
    }
    assert!(!Config::is_in(&json!({"model_type": "mamba", "model": 3})) && !Config::is_in(&json!([])));
}

#[test]
fn defaults() {
    let all = json!({"layers": [{"type": "mamba1"}, {"type": "mamba2"}, {"type": "mamba3"}, {"type": "attention"}],
        "numLayers": 4, "layerNorm": "no such key"});
    let config = config(with(all)).unwrap();
    let ssd = SsdConfig { d_inner: 64, d_state: 16, d_conv: 4, n_heads: 4, n_groups: 1 };
    assert_eq!(
        config.layers(),
        [
            LayerConfig::Mamba1(Mamba1Config { d_inner: 64, d_state: 16, d_conv: 4, dt_rank: 2 }),
            LayerConfig::Mamba2(ssd.clone()),
            LayerConfig::Mamba3(ssd.clone()),
            LayerConfig::Attention(AttentionConfig { n_heads: 4, head_dim: 8, d_ff: None }),
        ]
    );
    assert_eq!(ssd.head_dim(), 16);
    assert_eq!((config.eos_id(), config.seed(), config.vocab_size(), config.d_model()), (None, None, 10, 32));
}

#[test]
fn without_a_schedule_all_layers_are_mamba1() {
    for schedule in [json!({}), json!({"layers": null, "seed": null, "eosId": null, "dState": null})] {
        let config = config(with(schedule)).unwrap();
        assert_eq!(config.layers().iter().map(LayerConfig::kind).collect::<Vec<_>>(), [LayerKind::Mamba1; 2]);
    }
}

#[test]
fn a_layer_s_own_settings_win_over_its_type_s_over_the_model_s() {
    let config = config(with(json!({
        "nHeads": 8, "dState": 3, "dtRank": 9, "hasFfn": true, "eosId": 5.0, "seed": -1.5,
        "defaultMamba1": {"dtRank": 7, "dState": 4}, "defaultAttention": {"nHeads": 2, "ffnMult": 3, "dHead": 16},
        "layers": [{"type": "mamba1", "config": {"dState": 5, "expand": 1.5, "biasConv": false}},
                   {"type": "attention", "config": {"hasFfn": true}}],
    })))
    .unwrap();
    assert_eq!(
        config.layers(),
        [
            LayerConfig::Mamba1(Mamba1Config { d_inner: 48, d_state: 5, d_conv: 4, dt_rank: 7 }),
            LayerConfig::Attention(AttentionConfig { n_heads: 2, head_dim: 16, d_ff: Some(96) }),
        ]
    );
    assert_eq!((config.eos_id(), config.seed()), (Some(5), Some(u32::MAX)));
}

#[test]
fn impossible_configurations() {
    let layers = |first: Value| with(json!({"layers": [first, {"type": "mamba1"}]}));
    let own = |kind: &str, config: Value| layers(json!({"type": kind, "config": config}));
    refused(json!([1]), "a model's configuration is a JSON object");
    refused(json!({"model": {"dModel": 4}}), "`model.vocabSize`: missing");
    refused(json!({"model": 4}), "`vocabSize`: missing");
    refused(json!({"vocabSize": 4, "dModel": null, "numLayers": 1}), "`dModel`: missing");
    refused(json!({"vocabSize": 4, "dModel": 4}), "`numLayers`: missing");
    let size = "but a whole number from 1 to 16777216 is wanted";
    refused(with(json!({"dModel": 0})), &format!("`dModel`: 0, {size}"));
    refused(with(json!({"vocabSize": 1e9})), &format!("`vocabSize`: 1000000000.0, {size}"));
    refused(with(json!({"dState": -3})), &format!("`dState`: -3, {size}"));
    refused(with(json!({"dConv": 2.5})), &format!("`dConv`: 2.5, {size}"));
    refused(with(json!({"numLayers": "2"})), &format!("`numLayers`: \"2\", {size}"));
    refused(own("mamba1", json!({"dtRank": 0})), &format!("`layers[0].config.dtRank`: 0, {size}"));
    refused(
        with(json!({"defaultMamba1": {"dState": u64::MAX}})),
        &format!("`defaultMamba1.dState`: 18446744073709551615, {size}"),
    );
    refused(with(json!({"numLayers": 10_001})), "`numLayers`: 10001 layers; at most 10000 are taken");

    refused(with(json!({"layers": [{"type": "mamba1"}]})), "`layers`: 1 layers, but `numLayers` is 2");
    refused(with(json!({"layers": "mamba1"})), "`layers`: a list of layers wanted");
    let unknown = "`layers[0]`: layer 0 is of type `mamba4`, which is none of mamba1, mamba2, mamba3, attention";
    refused(layers(json!({"type": "mamba4"})), unknown);
    refused(layers(json!({"kind": "mamba1"})), "`layers[0]`: it has no `type`");
    refused(layers(json!("mamba1")), "`layers[0]`: it has no `type`");
    refused(layers(json!({"type": 1})), "`layers[0]`: its type is 1, but a name is wanted");
    refused(own("mamba1", json!(7)), "`layers[0].config`: 7, but an object is wanted");
    refused(with(json!({"defaultMamba1": []})), "`defaultMamba1`: [], but an object is wanted");
    refused(own("attention", json!({"hasFfn": 1})), "`layers[0].config.hasFfn`: 1, but true or false is wanted");
    refused(with(json!({"eosId": 0.5})), "`eosId`: 0.5, but a token's id, or -1 for none is wanted");
    refused(with(json!({"seed": "7"})), "`seed`: \"7\", but a number is wanted");

    let layer = "layer 0 (mamba2)";
    refused(
        own("mamba2", json!({"nHeads": 5})),
        &format!("`layers[0].config.nHeads`: {layer}: 5 heads do not divide the inner width 64"),
    );
    let mut nested = own("mamba3", json!({}));
    nested["nHeads"] = json!(7);
    refused(json!({"model": nested}), "`model.nHeads`: layer 0 (mamba3): 7 heads do not divide the inner width 64");
    refused(
        own("attention", json!({"nHeads": 64})),
        "`layers[0].config.nHeads`: layer 0 (attention): 64 heads do not divide the width 32",
    );
    refused(
        own("mamba2", json!({"nGroups": 5})),
        &format!("`layers[0].config.nGroups`: {layer}: 5 groups, but only 4 heads"),
    );
    assert!(config(own("mamba2", json!({"nGroups": 3}))).is_ok());
    refused(
        own("mamba2", json!({"dModel": 16})),
        &format!("`layers[0].config.dModel`: {layer}: a width of 16, but the model's is 32"),
    );
    refused(
        own("attention", json!({"dHead": 4})),
        "`layers[0].config.dHead`: layer 0 (attention): heads of 4, but 4 of them in a width of 32 are 8",
    );
    refused(
        own("mamba1", json!({"expand": 0.33})),
        "`layers[0].config.expand`: 0.33, but a factor that makes a width from 1 to 16777216 of 32 is wanted",
    );
    refused(with(json!({"dModel": 16_777_216})), "`expand`: 2 times 16777216 is more than 16777216");
}

#[test]
fn sizes_that_no_file_can_hold() {
    refused(
        with(json!({"dModel": 65_536, "vocabSize": 65_536})),
        "`layers[0]`: layer0.wInProj would be [262144, 65536], larger than a file can hold",
    );
    refused(
        with(json!({"dModel": 4096, "vocabSize": 1_048_576})),
        "`vocabSize`: an embedding of 1048576 by 4096 is larger than a file can hold",
    );
    let groups = json!({"type": "mamba3", "config": {"nHeads": 64, "nGroups": 64, "dState": 16_777_216}});
    let error = config(with(json!({"numLayers": 1, "layers": [groups]}))).unwrap_err().to_string();
    assert!(error.contains("layer0.wInProj would be [4294967424, 32]"), "{error}");
    // Much to store, but possible; nothing is allocated for it.
    let large = config(with(json!({"numLayers": 10_000, "dModel": 16_384, "vocabSize": 250_000}))).unwrap();
    assert_eq!(large.parameters().len(), 130_002);
}

#[test]
fn random_numbers_are_the_package_s() {
    let vectors: Value = serde_json::from_slice(&fixture("mbjs/_vectors/numeric.json")).unwrap();
    let rows = vectors["rng"].as_array().unwrap();
    assert_eq!(rows.len(), 8);
    for row in rows {
        let seed = seed_of(row["seed"].as_f64().unwrap());
        let mut random = Lcg::new(seed);
        for uniform in row["uniforms"].as_array().unwrap() {
            // The numbers are multiples of 2^-32; JSON's last digit may be read otherwise.
            let difference = random.uniform() - uniform.as_f64().unwrap();
            assert!(difference.abs() < 1e-12, "seed {seed}: {difference}");
        }
        let mut random = Lcg::new(seed);
        for bits in row["gauss_bits_std_0_02"].as_array().unwrap() {
            assert_eq!(u64::from(random.gaussian(0.02).to_bits()), bits.as_u64().unwrap(), "seed {seed}");
        }
    }
}
