use squall_units::Cut;

/// Room for frames.
pub trait FrameOutput {
    /// Room for one frame of `len` octets (without FCS), all of which is then written; more than one segment's where `cut` says
    /// how it is to be cut. `None`: full, ask again later.
    fn frame(&mut self, len: usize, cut: Cut) -> Option<&mut [u8]>;

    /// The longest frame that there is room for at all.
    fn longest(&self) -> usize;
}
