//! Rebuilds the crate when the web page, which is embedded in the binary, changes.

fn main() {
    // A missing path would rebuild the crate each time.
    let page = std::path::Path::new("../../ui/dist");
    let watched = if page.exists() { page } else { std::path::Path::new("../../ui") };
    println!("cargo:rerun-if-changed={}", watched.display());
}
