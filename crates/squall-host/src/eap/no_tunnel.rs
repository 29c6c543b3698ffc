//! A substitute for `tunnel` in builds without TLS: all settings are refused, so no host has a
//! session.

use squall_tls::{TlsSettings, TlsSettingsError};

use super::{Credentials, EapMethod};

/// A type without values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsClient {}

impl TlsClient {
    /// # Errors
    /// Always.
    pub fn new(_: &TlsSettings) -> Result<Self, TlsSettingsError> {
        Err(TlsSettingsError::unsupported())
    }
}

#[derive(Debug)]
pub(crate) enum Tunnel {}

impl Tunnel {
    pub fn begin(method: &EapMethod, _: &[u8]) -> Result<Box<Self>, &'static str> {
        match method {
            EapMethod::Md5 => Err("bad_type"),
            EapMethod::Tls(client)
            | EapMethod::Peap(client)
            | EapMethod::TtlsPap(client)
            | EapMethod::TtlsMschapV2(client) => match *client {},
        }
    }

    pub fn answer(&mut self, _: u8, _: &[u8], _: Credentials<'_>) -> Result<Vec<u8>, &'static str> {
        match *self {}
    }

    pub fn last(&self) -> &[u8] {
        match *self {}
    }

    pub fn is_proved(&self) -> bool {
        match *self {}
    }

    pub fn failure(&self) -> Option<&'static str> {
        match *self {}
    }
}
