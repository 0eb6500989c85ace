package client

import (
	"bufio"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestAWSSignature compares our signatures with the published examples of AWS:
// post-vanilla and post-x-www-form-urlencoded of the test suite for signers.
func TestAWSSignature(t *testing.T) {
	tests := map[string]struct {
		headers     map[string]string
		body, wants string
	}{
		"nothing": {map[string]string{}, "", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
		"a form": {
			map[string]string{"content-type": "application/x-www-form-urlencoded"}, "Param1=value1",
			"ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.headers["host"] = "example.amazonaws.com"
			key := awsKey{id: "AKIDEXAMPLE", secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
			key.sign("us-east-1", "service", tt.headers, tt.body, time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC))
			if got := tt.headers["authorization"]; !strings.HasSuffix(got, "Signature="+tt.wants) {
				t.Errorf("got %s, want %s", got, tt.wants)
			}
		})
	}
}

func TestAWSProof(t *testing.T) {
	env := map[string]string{"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "hush", "AWS_SESSION_TOKEN": "session"}
	getenv := func(k string) string { return env[k] }
	proof, err := awsProof(t.Context(), getenv, purpose{"https://h.example.com", "uid"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := base64.RawURLEncoding.DecodeString(proof)
	if err != nil || strings.Contains(string(text), "hush") {
		t.Fatalf("proof %s: %v", text, err)
	}
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(string(text))))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(req.Body)
	if err != nil || string(body) != awsBody || req.Host != awsHost || req.URL.Path != "/" {
		t.Errorf("%s %s, body %s, %v", req.Host, req.URL, body, err)
	}
	const signed = "SignedHeaders=content-type;holdfast-audience;holdfast-identity;host;x-amz-date;x-amz-security-token,"
	if got := req.Header.Get("Authorization"); !strings.Contains(got, signed) {
		t.Errorf("authorization %s, want %s", got, signed)
	}
	if req.Header.Get("Holdfast-Audience") != "https://h.example.com" || req.Header.Get("Holdfast-Identity") != "uid" {
		t.Errorf("headers %v", req.Header)
	}
	for name, value := range map[string]string{"AWS_SESSION_TOKEN": "a\r\nb: c", "AWS_SECRET_ACCESS_KEY": ""} {
		env[name] = value
		if _, err := awsProof(t.Context(), getenv, purpose{}); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s of %q: %v", name, value, err)
		}
	}
}
