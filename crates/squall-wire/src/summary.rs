use crate::Frame;
impl Frame {
    /// One line in the manner of `tcpdump -n`.
    pub fn summary(&self) -> String {
        self.names()
    }
}
