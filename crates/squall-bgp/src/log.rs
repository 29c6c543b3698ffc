//! A learner for tests.

use crate::{Family, Learner, Nlri, RawAttributes};

/// Records its calls as text.
#[derive(Default)]
pub(crate) struct Log(pub Vec<String>);

impl Learner for Log {
    fn announced(&mut self, family: Family, nlri: Nlri<'_>, attributes: &RawAttributes<'_>) {
        let (prefix, path) = (nlri.address(family), attributes.as_path());
        let hop = attributes.next_hop().map_or("?".into(), |hop| hop.to_string());
        self.0.push(format!("+{prefix}/{}#{} {hop} {path:?}", nlri.length, nlri.path));
    }

    fn withdrawn(&mut self, family: Family, nlri: Nlri<'_>) {
        self.0.push(format!("-{}/{}#{}", nlri.address(family), nlri.length, nlri.path));
    }

    fn end_of_rib(&mut self, family: Family) {
        self.0.push(format!("end {family:?}"));
    }

    fn stale(&mut self, family: Family) {
        self.0.push(format!("stale {family:?}"));
    }

    fn swept(&mut self, family: Family) {
        self.0.push(format!("swept {family:?}"));
    }

    fn cleared(&mut self, family: Family) {
        self.0.push(format!("cleared {family:?}"));
    }
}
