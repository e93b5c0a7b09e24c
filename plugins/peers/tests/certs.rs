//! Certificates for one test.

use std::path::{Path, PathBuf};

use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Name};

use crate::secure::Identity;

/// An authority, and a folder for what it signs, which goes with it.
pub(super) struct Authority {
    folder: PathBuf,
    cert: X509,
    key: PKey<Private>,
}

impl Authority {
    pub(super) fn new(name: &str) -> Authority {
        let unique = format!("lockgate-peers-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&folder).unwrap();
        let key = new_key();
        let cert = sign(name, &key, None, &[]);
        write(&folder.join("ca.pem"), &cert.to_pem().unwrap());
        Authority { folder, cert, key }
    }

    /// A certificate that names these hosts.
    pub(super) fn identity(&self, file: &str, hosts: &[&str]) -> Identity {
        let key = new_key();
        let cert = sign(file, &key, Some(self), hosts);
        let path = |end: &str| self.folder.join(format!("{file}.{end}"));
        write(&path("pem"), &cert.to_pem().unwrap());
        write(&path("key"), &key.private_key_to_pem_pkcs8().unwrap());
        Identity::Certificate {
            ca: self.folder.join("ca.pem"),
            cert: path("pem"),
            key: path("key"),
        }
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

fn new_key() -> PKey<Private> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

fn sign(name: &str, key: &PKey<Private>, by: Option<&Authority>, hosts: &[&str]) -> X509 {
    let mut subject = X509Name::builder().unwrap();
    subject.append_entry_by_nid(Nid::COMMONNAME, name).unwrap();
    let subject = subject.build();
    let mut cert = X509::builder().unwrap();
    cert.set_version(2).unwrap();
    let mut serial = BigNum::new().unwrap();
    serial.rand(120, MsbOption::MAYBE_ZERO, false).unwrap();
    cert.set_serial_number(&serial.to_asn1_integer().unwrap())
        .unwrap();
    cert.set_subject_name(&subject).unwrap();
    cert.set_issuer_name(by.map_or(&subject, |by| by.cert.subject_name()))
        .unwrap();
    cert.set_pubkey(key).unwrap();
    cert.set_not_before(&Asn1Time::days_from_now(0).unwrap())
        .unwrap();
    cert.set_not_after(&Asn1Time::days_from_now(1).unwrap())
        .unwrap();
    if by.is_none() {
        let ca = BasicConstraints::new().critical().ca().build().unwrap();
        cert.append_extension(ca).unwrap();
    }
    if !hosts.is_empty() {
        let mut names = SubjectAlternativeName::new();
        for host in hosts {
            match host.parse::<std::net::IpAddr>() {
                Ok(_) => names.ip(host),
                Err(_) => names.dns(host),
            };
        }
        let context = cert.x509v3_context(by.map(|by| &*by.cert), None);
        let names = names.build(&context).unwrap();
        cert.append_extension(names).unwrap();
    }
    let signer = by.map_or(key, |by| &by.key);
    cert.sign(signer, MessageDigest::sha256()).unwrap();
    cert.build()
}
