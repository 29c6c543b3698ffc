//! What a report looks like: `cargo run -p squall --example show_report -- STREAMS [WIDTH] [FILE.html]`.

use squall::{render, report};

#[path = "../src/render/sample.rs"]
mod sample;

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let streams = args.next().and_then(|n| n.parse().ok()).unwrap_or(5);
    let width = args.next().and_then(|n| n.parse().ok()).unwrap_or(100);
    let report = sample::report(streams);
    print!("{}", render::summary(&report, width, true));
    if let Some(path) = args.next() {
        std::fs::write(path, render::html(&report))?;
    }
    Ok(())
}
