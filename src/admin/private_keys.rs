//! Private keys: who is not shown them, and what is said of one that cannot be read.

use serde_json::Value;

use crate::config::keyring::Keyring;
use crate::config::kind::{Key, Kind};
use crate::endpoint::Answer;

/// Takes private keys out of a certificate.
pub(super) fn without_keys(value: &mut Value) {
    if let Some(map) = value.as_object_mut() {
        map.shift_remove("key");
        map.shift_remove("keys");
    }
}

/// The member of an upstream's `tls` that is a private key.
pub(super) const CLIENT_KEY: &str = "client_key";

/// Takes the private keys of upstreams out of whatever they are in. What was read is not nested too
/// deeply for this.
pub(super) fn without_client_keys(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(without_client_keys),
        Value::Object(map) => {
            if let Some(tls) = map.get_mut("tls").and_then(Value::as_object_mut) {
                tls.shift_remove(CLIENT_KEY);
            }
            map.values_mut().for_each(without_client_keys);
        }
        _ => {}
    }
}

/// What is said of a private key that is not one because it was encrypted with another key.
pub(super) fn not_opened(keyring: &Keyring, key: &Key, value: &Value) -> Option<Answer> {
    let sealed = |key: &&Value| key.as_str().is_some_and(|text| keyring.is_sealed(text));
    if key.kind != Kind::Ssl {
        return None;
    }
    const TEXT: &str = "failed to decrypt previous encrypted key";
    if value.get("key").filter(sealed).is_some() {
        return Some(Answer::bad(TEXT));
    }
    let further = value.get("keys").and_then(Value::as_array)?;
    let at = further.iter().position(|key| sealed(&key))?;
    let text = format!("failed to handle cert-key pair[{}]: {TEXT}", at + 1);
    Some(Answer::bad(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn client_keys_are_found_wherever_they_are() {
        let tls = json!({"client_cert": "c", "client_key": "SECRET", "verify": true});
        let mut value = json!({
            "tls": tls,
            "upstream": {"tls": tls},
            "plugins": {"traffic-split": {"rules": [{"weighted_upstreams": [{"upstream": {"tls": tls}}]}]}},
            "client_key": "of something else",
        });
        without_client_keys(&mut value);
        let text = value.to_string();
        assert!(!text.contains("SECRET"), "{text}");
        assert_eq!(text.matches("client_cert").count(), 3, "{text}");
        assert!(text.contains("of something else"), "{text}");
    }
}
