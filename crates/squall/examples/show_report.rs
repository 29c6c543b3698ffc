//! What a report looks like: `cargo run -p squall --example show_report -- STREAMS [WIDTH] [FILE.html | live]`.

use std::time::Duration;

use squall::{render, report};

#[path = "../src/render/sample.rs"]
mod sample;

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let streams = args.next().and_then(|n| n.parse().ok()).unwrap_or(5);
    let width = args.next().and_then(|n| n.parse().ok()).unwrap_or(100);
    let file = args.next();
    let report = sample::report(streams);
    if file.as_deref() == Some("live") {
        let total = Duration::from_secs_f64(report.duration_s);
        let mut live = render::Live::new(render::LiveMode::detect(false), "squall demo", Some(total));
        for sample in &report.series {
            live.update(sample, &report);
            std::thread::sleep(Duration::from_millis(25));
        }
        live.finish();
    } else if let Some(path) = file {
        std::fs::write(path, render::html(&report))?;
    }
    print!("{}", render::summary(&report, width, true));
    Ok(())
}
