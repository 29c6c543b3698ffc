//! Files of tests.

use std::io;

use crate::Assets;

/// Names and texts of the only files that there are.
pub struct TestFiles(pub &'static [(&'static str, &'static str)]);

impl Assets for TestFiles {
    fn file(&self, path: &str) -> io::Result<Vec<u8>> {
        let found = self.0.iter().find(|(name, _)| *name == path);
        found.map(|(_, text)| text.as_bytes().to_vec()).ok_or(io::ErrorKind::NotFound.into())
    }
    fn payload(&self, path: &str) -> io::Result<Vec<u8>> {
        self.file(path)
    }
    fn table(&self, path: &str) -> io::Result<Box<dyn io::Read>> {
        self.file(path).map(|octets| Box::new(io::Cursor::new(octets)) as _)
    }
    fn capture_frame(&self, path: &str, _: u64) -> Result<Vec<u8>, String> {
        Err(format!("no {path}"))
    }
    fn capture(&self, _: &str) -> squall_replay::Input {
        unreachable!("no test names a capture")
    }
    fn conversations(
        &self,
        path: &str,
        _: Option<&str>,
        _: &squall_apps::ImportOptions,
    ) -> Result<squall_apps::Import, String> {
        Err(format!("no {path}"))
    }
    fn filter(&self, expression: &str) -> Result<squall_bpf::classic::Filter, String> {
        Err(format!("no {expression}"))
    }
}
