//! The example profiles.

use std::path::Path;

use squall::{Profile, Session};

#[test]
fn every_example_can_be_sent_as_it_is() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/profiles");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let profile = Profile::load(&path).unwrap();
        let planned =
            Session::new(profile).plan_only().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let plan = &planned.plan;
        assert!(!plan.only_receives(), "{}", path.display());
        count += 1;
    }
    assert!(count > 5, "examples are where this test seeks them");
}
