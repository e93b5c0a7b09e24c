//! A certificate authority for one run: names in, PEM out, made when first asked for.
//!
//! Elliptic keys, because an RSA key per certificate would cost a second in a debug build.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509Name, X509NameBuilder};

/// Certificates are valid this long; a run takes minutes.
const VALID_DAYS: u32 = 2;

/// A certificate and its key.
#[derive(Clone)]
pub(crate) struct Pair {
    /// The certificate.
    pub(crate) cert: X509,
    /// Its key.
    pub(crate) key: PKey<Private>,
}

impl Pair {
    /// The certificate as PEM.
    pub(crate) fn cert_pem(&self) -> Result<String> {
        Ok(String::from_utf8(self.cert.to_pem()?)?)
    }

    /// The key as PEM (PKCS #8).
    pub(crate) fn key_pem(&self) -> Result<String> {
        Ok(String::from_utf8(self.key.private_key_to_pem_pkcs8()?)?)
    }
}

/// The authority and what it has signed so far.
pub(crate) struct Certs {
    ca: Pair,
    made: Mutex<HashMap<String, Arc<Pair>>>,
}

impl Certs {
    /// A new authority.
    pub(crate) fn new() -> Result<Self> {
        let key = new_key()?;
        let name = common_name("lockgate test CA")?;
        let mut builder = builder(&name, &name, &key)?;
        builder.append_extension(BasicConstraints::new().critical().ca().build()?)?;
        builder.sign(&key, MessageDigest::sha256())?;
        Ok(Certs {
            ca: Pair {
                cert: builder.build(),
                key,
            },
            made: Mutex::default(),
        })
    }

    /// The authority's own certificate as PEM.
    pub(crate) fn ca_pem(&self) -> Result<String> {
        self.ca.cert_pem()
    }

    /// The pair for comma-separated names; the first is the common name. The same text gives the same pair.
    pub(crate) fn pair(&self, names: &str) -> Result<Arc<Pair>> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pair) = made.get(names) {
            return Ok(Arc::clone(pair));
        }
        let pair = Arc::new(
            self.sign(names)
                .with_context(|| format!("certificate for {names}"))?,
        );
        made.insert(names.to_owned(), Arc::clone(&pair));
        Ok(pair)
    }

    fn sign(&self, names: &str) -> Result<Pair> {
        let list: Vec<&str> = names.split(',').map(str::trim).collect();
        let first = list.first().copied().unwrap_or_default();
        let key = new_key()?;
        let mut builder = builder(&common_name(first)?, self.ca.cert.subject_name(), &key)?;
        let mut alternatives = SubjectAlternativeName::new();
        for name in list {
            if name.parse::<std::net::IpAddr>().is_ok() {
                alternatives.ip(name);
            } else {
                alternatives.dns(name);
            }
        }
        let alternatives =
            alternatives.build(&builder.x509v3_context(Some(&self.ca.cert), None))?;
        builder.append_extension(alternatives)?;
        builder.sign(&self.ca.key, MessageDigest::sha256())?;
        Ok(Pair {
            cert: builder.build(),
            key,
        })
    }
}

fn new_key() -> Result<PKey<Private>> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
    Ok(PKey::from_ec_key(EcKey::generate(&group)?)?)
}

fn common_name(name: &str) -> Result<X509Name> {
    let mut builder = X509NameBuilder::new()?;
    builder.append_entry_by_nid(Nid::COMMONNAME, name)?;
    Ok(builder.build())
}

fn builder(
    subject: &X509Name,
    issuer: &openssl::x509::X509NameRef,
    key: &PKey<Private>,
) -> Result<X509Builder> {
    let mut builder = X509::builder()?;
    builder.set_version(2)?;
    let mut serial = BigNum::new()?;
    serial.rand(127, MsbOption::MAYBE_ZERO, false)?;
    let serial = serial.to_asn1_integer()?;
    builder.set_serial_number(&serial)?;
    builder.set_subject_name(subject)?;
    builder.set_issuer_name(issuer)?;
    builder.set_pubkey(key)?;
    let start = Asn1Time::days_from_now(0)?;
    let end = Asn1Time::days_from_now(VALID_DAYS)?;
    builder.set_not_before(&start)?;
    builder.set_not_after(&end)?;
    Ok(builder)
}
