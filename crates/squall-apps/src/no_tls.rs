//! A substitute for `tls` in builds without that feature: all settings are refused, so no program
//! has sessions.

use std::{io, path::Path};

use squall_tcp::{Event, Piece};

use crate::{Apps, FlowSocket, Message, Observer, ProgramId, TlsSettings, TlsSettingsError};

/// A type without values.
#[derive(Clone, Debug, PartialEq)]
pub enum Tls {}

impl Tls {
    /// # Errors
    /// Always.
    pub fn new(_: &TlsSettings) -> Result<Self, TlsSettingsError> {
        Err(TlsSettingsError::unsupported())
    }

    pub fn log_keys(&mut self, _: &KeyLog) {
        match *self {}
    }

    /// # Errors
    /// Never.
    pub fn enable_early_data(&mut self) -> Result<(), &'static str> {
        match *self {}
    }

    /// # Errors
    /// Never.
    pub fn set_names(&mut self, _: &Message) -> Result<(), String> {
        match *self {}
    }

    /// # Errors
    /// Never.
    pub fn check_http3(&self) -> Result<(), &'static str> {
        match *self {}
    }
}

/// A type without values.
#[derive(Clone, Debug)]
pub enum KeyLog {}

impl KeyLog {
    /// # Errors
    /// Always.
    pub fn create(_: &Path) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, TlsSettingsError::unsupported()))
    }

    pub fn failure(&self) -> Option<&str> {
        match *self {}
    }
}

/// A bit that no piece has, because there are fewer messages.
pub(crate) const SESSION: u32 = 1 << 31;

#[derive(Clone, Debug, Default)]
pub(crate) struct Layer;

impl Layer {
    pub fn add(&mut self, _: ProgramId, tls: &Tls) {
        match *tls {}
    }

    pub fn has(&self, _: ProgramId) -> bool {
        false
    }

    pub fn memory(&self) -> usize {
        0
    }

    pub fn len(&self) -> usize {
        0
    }

    pub fn copy(&self, _: Piece, _: u32, _: &mut [u8]) {
        unreachable!("no program has a session");
    }

    pub fn event<O: Observer>(
        &mut self,
        apps: &mut Apps<O>,
        socket: &mut impl FlowSocket,
        event: Event<'_>,
    ) {
        apps.run_event(socket, event);
    }
}
