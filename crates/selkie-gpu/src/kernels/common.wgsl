// What every kernel is told of the batch: `Step` in table.rs.
struct Step {
    rows: u32,
    outputs: u32,
    first: u32,
    own: u32,
    past: u32,
    done: u32,
    input: u32, // the row of ids and angles that belongs to row 0
    unused: u32,
}
@group(1) @binding(0) var<uniform> step: Step;

// The number of a workgroup in a line that may be folded.
fn group_index(id: vec3<u32>, n: vec3<u32>) -> u32 {
    return id.x + id.y * n.x;
}
