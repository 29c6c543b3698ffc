//! Rebuilds the crate when the web page, which is embedded in the binary, changes. Warns if the page
//! is older than its source.

use std::path::Path;
use std::time::SystemTime;

fn main() {
    // A missing path would rebuild the crate each time.
    let page = Path::new("../../ui/dist");
    let watched = if page.exists() { page } else { Path::new("../../ui") };
    println!("cargo:rerun-if-changed={}", watched.display());
    let source = Path::new("../../ui/src");
    println!("cargo:rerun-if-changed={}", source.display());
    if let (Some(source), Some(built)) = (newest(source), newest(page))
        && source > built
    {
        println!("cargo:warning=ui/dist is older than ui/src: scripts/ui builds the web page");
    }
}

/// The latest time at which a file in `folder` was modified; `None` if there is none.
fn newest(folder: &Path) -> Option<SystemTime> {
    let entries = std::fs::read_dir(folder).ok()?;
    entries
        .flatten()
        .filter_map(|entry| match entry.file_type().ok()?.is_dir() {
            true => newest(&entry.path()),
            false => entry.metadata().ok()?.modified().ok(),
        })
        .max()
}
