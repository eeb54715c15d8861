// What is said of a token that is to be chosen: `Record` in mod.rs. It stands where other kernels have the step, which is part
// of the buffer that the chosen id is written to.
struct Choice {
    seed: vec2<u32>, // low, high; so are the next two
    sequence: vec2<u32>,
    position: vec2<u32>,
    token: u32, // the token's number in the submit
    stops: u32, // how many ids of `stop` count
    temperature: f32,
    reach: f32, // logits further below the largest are as good as impossible
    most: f32, // logits beyond cannot be divided by the temperature
    last_rank: u32, // what min-p leaves
    top_k: u32,
    top_p: u32, // in 2^-32
    whole: u32, // not 0: top-p is 1
    unused: u32,
    stop: array<vec4<u32>, 12>,
}
@group(1) @binding(0) var<uniform> choice: Choice;

const NONE = 0xffffffffu;
const THREADS = 256u;
// Values that a workgroup looks at.
const CHUNK = 1024u;
