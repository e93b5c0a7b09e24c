use openssl::asn1::Asn1Time;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::x509::X509;
use serde_json::{Value, json};

use super::*;

/// A certificate that signs itself, and its key.
fn pair() -> (String, String) {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
    let mut cert = X509::builder().unwrap();
    cert.set_pubkey(&key).unwrap();
    cert.set_not_before(&Asn1Time::days_from_now(0).unwrap())
        .unwrap();
    cert.set_not_after(&Asn1Time::days_from_now(1).unwrap())
        .unwrap();
    cert.sign(&key, MessageDigest::sha256()).unwrap();
    let text = |pem: Vec<u8>| String::from_utf8(pem).unwrap();
    (
        text(cert.build().to_pem().unwrap()),
        text(key.private_key_to_pem_pkcs8().unwrap()),
    )
}

#[test]
fn certificates_and_names() {
    let (cert, key) = pair();
    let (other_cert, other_key) = pair();
    let check = |extra: Value, expected: &[&str]| {
        let mut raw = json!({"cert": cert, "key": key, "sni": "a.test"});
        for (name, value) in extra.as_object().unwrap() {
            if value.is_null() {
                raw.as_object_mut().unwrap().remove(name);
            } else {
                raw[name] = value.clone();
            }
        }
        let mut out = Problems::default();
        match lockgate_plugin::plugin::typed::<Ssl>(&raw) {
            Ok(ssl) => ssl.check(&mut out),
            Err(problems) => out.extend(problems),
        }
        let got: Vec<String> = out.iter().map(ToString::to_string).collect();
        assert_eq!(got.len(), expected.len(), "{extra}: {got:?}");
        for (got, expected) in got.iter().zip(expected) {
            assert!(got.starts_with(expected), "{extra}: {got}");
        }
    };
    let long = "x".repeat(200);
    check(json!({}), &[]);
    check(
        json!({"sni": null, "snis": ["a.test", "*.b.test"], "ssl_protocols": ["TLSv1.3"]}),
        &[],
    );
    check(
        json!({"sni": null}),
        &["property \"sni\" is required (or \"snis\")"],
    );
    check(
        json!({"snis": ["b.test"]}),
        &["snis: only one of sni or snis is allowed"],
    );
    check(json!({"type": "client", "sni": null}), &[]);
    check(
        json!({"type": "client"}),
        &["sni: a client certificate has no server names"],
    );
    check(json!({"cert": null}), &["property \"cert\" is required"]);
    check(
        json!({"cert": "x"}),
        &["cert: string too short, expected at least 128, got 1"],
    );
    check(
        json!({"cert": long}),
        &["cert: failed to parse cert: no certificate in the text"],
    );
    check(json!({"key": long}), &["key: failed to parse key: "]);
    check(
        json!({"key": other_key}),
        &["key: the key does not belong to the certificate"],
    );
    check(
        json!({"key": "$secret://vault/1/a"}),
        &["key: references are not resolved here by this version"],
    );
    check(json!({"certs": [other_cert], "keys": [other_key]}), &[]);
    check(
        json!({"certs": [other_cert]}),
        &["keys: mismatched number of certs and keys: 1 and 0"],
    );
    check(
        json!({"certs": [other_cert], "keys": [key]}),
        &["keys[0]: failed to handle cert-key pair[1]: the key does not belong to the certificate"],
    );
    check(
        json!({"client": {}}),
        &["client: property \"ca\" is required"],
    );
    check(
        json!({"client": {"ca": cert}}),
        &["client: client certificates are not checked by this version"],
    );
    check(
        json!({"status": 3, "ssl_protocols": ["SSLv3"], "sni": "a b"}),
        &[
            "sni: failed to match pattern",
            "status: matches none of the enum values",
            "ssl_protocols[0]: matches none of the enum values",
        ],
    );
}
