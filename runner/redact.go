package runner

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// redacted is the tool list as it is recorded: without credentials, yet different for different servers.
func redacted(tools []json.RawMessage) ([]json.RawMessage, error) {
	list := make([]json.RawMessage, len(tools))
	for i, raw := range tools {
		o := decodeObject(raw)
		if err := redactTool(o); err != nil {
			return nil, refuse("tools: %v", err)
		}
		list[i] = encode(o)
	}
	return list, nil
}

func redactTool(o object) error {
	switch o["type"] {
	case "mcp":
		delete(o, "authorization")
		delete(o, "headers")
		if address, ok := o["server_url"].(string); ok {
			digest, err := addressDigest(address)
			if err != nil {
				return err
			}
			o["server_url"] = digest
		}
	case "code_interpreter":
		container, _ := o["container"].(object)
		network, _ := container["network_policy"].(object)
		secrets, _ := network["domain_secrets"].([]any)
		for _, v := range secrets {
			if secret, ok := v.(object); ok {
				secret["value"] = ""
			}
		}
	}
	return nil
}

// redactedResponse is a response as it is recorded: the API may have told back the tools.
func redactedResponse(response json.RawMessage) json.RawMessage {
	o := decodeObject(response)
	tools, ok := o["tools"].([]any)
	if !ok {
		return response
	}
	for _, v := range tools {
		if tool, ok := v.(object); ok && redactTool(tool) != nil {
			delete(tool, "server_url") // what cannot be made a digest of is not kept either
		}
	}
	return encode(o)
}

// secretNames are names of query parameters that hold credentials, in small letters and without dashes, underscores
// and a leading x.
var secretNames = map[string]bool{
	"apikey": true, "accesstoken": true, "refreshtoken": true, "sessiontoken": true, "sessionid": true, "idtoken": true,
	"authtoken": true, "authorization": true, "token": true, "password": true, "clientsecret": true,
	"signingsecret": true, "sig": true, "signature": true, "xgoogsignature": true, "xgoogcredential": true,
	"xamzsecuritytoken": true, "xamzsignature": true, "xamzcredential": true,
}

func isSecretName(name string) bool {
	name = strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
	return secretNames[name] || secretNames[strings.TrimPrefix(name, "x")]
}

// addressDigest stands for the address of a server in a record. Addresses that differ in nothing but credentials, or
// in ways of writing the same address, have the same digest.
func addressDigest(address string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || u.Scheme == "" || u.Host == "" {
		return "", refuse("the address of an MCP server is not a URL")
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	u.Host = strings.ToLower(u.Host)
	if port := u.Port(); port == "" || u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80" {
		u.Host = strings.TrimSuffix(u.Host, ":"+port)
	}
	path := withoutDots(u.EscapedPath())
	query := maskedQuery(u.RawQuery)
	if query != "" {
		query = "?" + query
	}
	sum := sha256.Sum256([]byte(u.Scheme + "://" + u.Host + path + query))
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// withoutDots resolves the dot segments of an escaped path, as browsers do: empty segments stay.
func withoutDots(path string) string {
	var kept []string
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch strings.ReplaceAll(strings.ToLower(s), "%2e", ".") {
		case "..":
			kept = kept[:max(0, len(kept)-1)]
		case ".":
		default:
			kept = append(kept, s)
			continue
		}
		if last {
			kept = append(kept, "")
		}
	}
	return "/" + strings.Join(kept, "/")
}

// maskedQuery leaves a query as it is unless it holds credentials. Otherwise it is written anew in form encoding, with
// one mask for all values of a name.
func maskedQuery(raw string) string {
	type pair struct{ name, value string }
	var pairs []pair
	masked := map[string]bool{}
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		name, value = unescape(name), unescape(value)
		if isSecretName(name) {
			if masked[name] {
				continue
			}
			masked[name], value = true, "***"
		}
		pairs = append(pairs, pair{name, value})
	}
	if len(masked) == 0 {
		return queryEscaped(raw)
	}
	parts := make([]string, len(pairs))
	for i, p := range pairs {
		parts[i] = formEscape(p.name) + "=" + formEscape(p.value)
	}
	return strings.Join(parts, "&")
}

// queryEscaped is a query as browsers send it: what may not be in an address is escaped, all else stays as it is.
func queryEscaped(raw string) string {
	var b strings.Builder
	for _, c := range []byte(raw) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"'<>`, c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// unescape reads form encoding and leaves alone what is none.
func unescape(s string) string {
	var b strings.Builder
	s = strings.ReplaceAll(s, "+", " ")
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := hex.DecodeString(s[i+1 : i+3]); err == nil {
				b.Write(c)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// formEscape writes form encoding as browsers do: url.QueryEscape keeps the tilde and escapes the star.
func formEscape(s string) string {
	return strings.NewReplacer("~", "%7E", "%2A", "*").Replace(url.QueryEscape(s))
}
