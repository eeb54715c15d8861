//! Rotary embeddings against the golden file: from a configuration's words to turned vectors.

use std::{collections::BTreeMap, rc::Rc};

use selkie_formats::{Checkpoint, DType, MemorySource, TensorSpec, safetensors::SafetensorsWriter};
use selkie_model::{LoadedWeights, families, reference::ops::rope, rope::RopeSpec};
use serde_json::{Value, json};

use crate::support::{Golden, near};

/// The rotary embedding that a model with these `rope_parameters` has: a LLaMA of one layer, one head and no values.
fn read(parameters: &Value) -> RopeSpec {
    let head_dim = parameters["head_dim"].as_u64().expect("head_dim") as usize;
    let config = json!({
        "model_type": "llama", "hidden_size": head_dim, "num_attention_heads": 1, "num_hidden_layers": 1,
        "intermediate_size": 1, "max_position_embeddings": parameters["max_position_embeddings"],
        "rope_parameters": parameters,
    });
    let matrix = |name: &str, out: usize, input: usize| (format!("model.{name}.weight"), vec![out, input]);
    let norm = |name: &str| (format!("model.{name}.weight"), vec![head_dim]);
    let square = |name: &str| matrix(&format!("layers.0.self_attn.{name}_proj"), head_dim, head_dim);
    let tensors = [
        matrix("embed_tokens", 1, head_dim),
        norm("norm"),
        norm("layers.0.input_layernorm"),
        norm("layers.0.post_attention_layernorm"),
        square("q"),
        square("k"),
        square("v"),
        square("o"),
        matrix("layers.0.mlp.gate_proj", 1, head_dim),
        matrix("layers.0.mlp.up_proj", 1, head_dim),
        matrix("layers.0.mlp.down_proj", head_dim, 1),
    ];
    let specs = tensors.map(|(name, shape)| TensorSpec { name, dtype: DType::F32, shape });
    let mut writer = SafetensorsWriter::new(Vec::new(), &BTreeMap::new(), &specs).expect("a header");
    for spec in &specs {
        writer.write(&vec![0; 4 * spec.shape.iter().product::<usize>()]).expect("zeros");
    }
    let source = Rc::new(MemorySource::new("tiny", writer.finish().expect("a file")));
    let checkpoint = pollster::block_on(Checkpoint::open_safetensors(vec![source], None)).expect("a checkpoint");
    families::read(&checkpoint, Some(&config)).expect("a model").ropes[0].clone()
}

#[test]
fn every_scaling() {
    let golden = Golden::open("rope");
    let cases = golden.cases();
    assert!(cases.len() >= 9);
    for case in cases {
        let name = |name: &str| format!("{case}.{name}");
        let parameters = golden.parameters(&case);
        let spec = read(&parameters);
        let positions: Vec<usize> = golden.ints(&name("in.positions")).iter().map(|&p| p as usize).collect();
        let length = positions.iter().max().expect("positions") + 1;
        let no_weights: LoadedWeights = [].into_iter().collect();
        let frequencies = spec.frequencies(length, &no_weights).expect("frequencies");
        for (i, (got, wanted)) in frequencies.inv_freq.iter().zip(golden.get(&name("out.inv_freq"))).enumerate() {
            assert!((got / wanted - 1.0).abs() < 1e-6, "{case}: frequency {i} is {got}, not {wanted}");
        }
        let factor = parameters["attention_scaling"].as_f64().expect("attention_scaling");
        assert!((frequencies.attention_factor / factor - 1.0).abs() < 1e-12, "{case}: attention factor");

        let angles = |position: usize| -> Vec<(f64, f64)> {
            frequencies.cos_sin(position).map(|(cos, sin)| (f64::from(cos), f64::from(sin))).collect()
        };
        let both = |half: Vec<f64>| [half.clone(), half].concat();
        let cos: Vec<f64> = positions.iter().flat_map(|&p| both(angles(p).iter().map(|a| a.0).collect())).collect();
        let sin: Vec<f64> = positions.iter().flat_map(|&p| both(angles(p).iter().map(|a| a.1).collect())).collect();
        near(&cos, &golden.get(&name("out.cos")), 1e-6, &name("cos"));
        near(&sin, &golden.get(&name("out.sin")), 1e-6, &name("sin"));

        for what in ["q", "k"] {
            // [1, heads, length, head_dim]
            let mut heads = golden.get(&name(&format!("in.{what}")));
            let width = golden.shape(&name(&format!("in.{what}")))[3];
            for (i, head) in heads.chunks_exact_mut(width).enumerate() {
                rope(head, &angles(positions[i % positions.len()]), spec.pairing);
            }
            near(&heads, &golden.get(&name(&format!("out.{what}"))), 1e-6, &name(what));
        }
    }
}
