//! The web page that is carried in the binary may be built after it: then it is to be built again.

fn main() {
    // A path that is not there would have it built each time.
    let page = std::path::Path::new("../../ui/dist");
    let watched = if page.exists() { page } else { std::path::Path::new("../../ui") };
    println!("cargo:rerun-if-changed={}", watched.display());
}
