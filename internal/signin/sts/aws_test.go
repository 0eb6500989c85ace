package sts

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

const (
	proofIdentity = resource.UID("0123456789abcdef0123456789abcdef01234567/0123456789abcdef")
	proofBody     = "Action=GetCallerIdentity&Version=2011-06-15"
)

var proofTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// proofReader returns a service that can only read proofs.
func proofReader() *Service {
	return &Service{
		cfg: Config{AWS: AWS{Headers: []string{"Holdfast", "Other"}}}, now: func() time.Time { return proofTime },
		audiences: []string{"https://auth.example", "auth.example", "https://auth.example/"},
	}
}

// A proof is a signed request before encoding.
type proof struct {
	line, host, body string
	headers          []string // alternating names and values
	authorization    string
}

func goodProof() proof {
	return proof{
		"POST / HTTP/1.1", "sts.amazonaws.com", proofBody,
		[]string{
			"X-Amz-Date: 20260102T030405Z", "Holdfast-Audience: https://auth.example",
			"Holdfast-Identity: " + string(proofIdentity),
			"Content-Type: application/x-www-form-urlencoded", "X-Amz-Security-Token: t",
		},
		signedWith("host;x-amz-date;holdfast-audience;holdfast-identity"),
	}
}

func signedWith(headers string) string {
	return "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260102/us-east-1/sts/aws4_request, SignedHeaders=" + headers +
		", Signature=" + strings.Repeat("0f", 32)
}

func (p proof) text() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\r\nHost: %s\r\nContent-Length: %d\r\n", p.line, p.host, len(p.body))
	if p.authorization != "" {
		fmt.Fprintf(&b, "Authorization: %s\r\n", p.authorization)
	}
	for _, h := range p.headers {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n" + p.body)
	return base64.RawURLEncoding.EncodeToString(b.Bytes())
}

// with replaces a header.
func (p *proof) with(name, value string) {
	for i, h := range p.headers {
		if strings.HasPrefix(h, name+":") {
			p.headers[i] = name + ": " + value
			return
		}
	}
	p.headers = append(p.headers, name+": "+value)
}

// badProofs are signed requests for another service, for another identity, for more than GetCallerIdentity, or not
// recent. Each has the name of the claim in the error.
var badProofs = map[string]struct {
	change func(*proof)
	claim  string
}{
	"another method":     {func(p *proof) { p.line = "GET / HTTP/1.1" }, "proof"},
	"another path":       {func(p *proof) { p.line = "POST /x HTTP/1.1" }, "proof"},
	"a query":            {func(p *proof) { p.line = "POST /?Action=AssumeRole HTTP/1.1" }, "proof"},
	"another address":    {func(p *proof) { p.line = "POST https://evil.example/ HTTP/1.1" }, "host"},
	"another host":       {func(p *proof) { p.host = "sts.evil.example" }, "host"},
	"a host with more":   {func(p *proof) { p.host = "sts.amazonaws.com.evil.example" }, "host"},
	"a host with a port": {func(p *proof) { p.host = "sts.amazonaws.com:8443" }, "host"},
	"another action":     {func(p *proof) { p.body = "Action=AssumeRole&Version=2011-06-15" }, "proof"},
	"two actions":        {func(p *proof) { p.body += "&Action=AssumeRole" }, "proof"},
	"no action":          {func(p *proof) { p.body = "Version=2011-06-15" }, "proof"},
	"an action and more": {func(p *proof) { p.body += "&RoleArn=x" }, "proof"},
	"a broken body":      {func(p *proof) { p.body = "Action=%zz&Version=1" }, "proof"},
	"a header twice": {
		func(p *proof) { p.headers = append(p.headers, "Holdfast-Identity: other") }, "holdfast-identity",
	},
	"a date twice": {
		func(p *proof) { p.headers = append(p.headers, "x-amz-date: 20260102T030405Z") }, "x-amz-date",
	},
	"two signatures": {
		func(p *proof) { p.headers = append(p.headers, "Authorization: "+p.authorization) }, "authorization",
	},
	"no signature":           {func(p *proof) { p.authorization = "" }, "signature"},
	"another way of signing": {func(p *proof) { p.authorization = "Bearer x" }, "signature"},
	"signed headers named twice": {func(p *proof) {
		p.authorization = strings.Replace(
			p.authorization, ", SignedHeaders", ", SignedHeaders=host;x-amz-date, SignedHeaders", 1,
		)
	}, "signature"},
	"signed headers elsewhere": {func(p *proof) {
		p.authorization = "SignedHeaders=host;x-amz-date;holdfast-audience;holdfast-identity " + signedWith(
			"host;x-amz-date",
		)
	}, "signature"},
	"unsigned host": {
		func(p *proof) { p.authorization = signedWith("x-amz-date;holdfast-audience;holdfast-identity") }, "signature",
	},
	"unsigned date": {
		func(p *proof) { p.authorization = signedWith("host;holdfast-audience;holdfast-identity") }, "signature",
	},
	"unsigned audience": {
		func(p *proof) { p.authorization = signedWith("host;x-amz-date;holdfast-identity") }, "signature",
	},
	"unsigned identity": {
		func(p *proof) { p.authorization = signedWith("host;x-amz-date;holdfast-audience") }, "signature",
	},
	"signed with more letters": {
		func(p *proof) { p.authorization = signedWith("host;x-amz-date;holdfast-audience-x;holdfast-identity") }, "signature",
	},
	"another's headers signed": {func(p *proof) {
		p.with("Other-Audience", "https://auth.example")
		p.with("Other-Identity", string(proofIdentity))
	}, "signature"},
	"no audience":      {func(p *proof) { p.with("Holdfast-Audience", "") }, "aud"},
	"another audience": {func(p *proof) { p.with("Holdfast-Audience", "https://elsewhere.example") }, "aud"},
	"two audiences in one": {
		func(p *proof) { p.with("Holdfast-Audience", "https://auth.example, https://elsewhere.example") }, "aud",
	},
	"another identity": {func(p *proof) { p.with("Holdfast-Identity", string(proofIdentity[:40])) }, "identity"},
	"no identity":      {func(p *proof) { p.with("Holdfast-Identity", "") }, "identity"},
	"too old":          {func(p *proof) { p.with("X-Amz-Date", "20260102T024904Z") }, "x-amz-date"},
	"too new":          {func(p *proof) { p.with("X-Amz-Date", "20260102T030906Z") }, "x-amz-date"},
	"no date":          {func(p *proof) { p.with("X-Amz-Date", "") }, "x-amz-date"},
	"a date in words":  {func(p *proof) { p.with("X-Amz-Date", "now") }, "x-amz-date"},
	"a huge header":    {func(p *proof) { p.with("X", strings.Repeat("x", 9000)) }, "proof"},
}

func TestProofs(t *testing.T) {
	s := proofReader()
	for name, change := range map[string]func(*proof){
		"as it should be":   func(*proof) {},
		"of a while ago":    func(p *proof) { p.with("X-Amz-Date", "20260102T024905Z") },
		"from a fast clock": func(p *proof) { p.with("X-Amz-Date", "20260102T030905Z") },
		"of another client": func(p *proof) {
			p.headers = []string{
				"X-Amz-Date: 20260102T030405Z", "Other-Audience: https://auth.example",
				"Other-Identity: " + string(proofIdentity),
			}
			p.authorization = signedWith("host;other-audience;other-identity;x-amz-date")
		},
	} {
		p := goodProof()
		change(&p)
		r, problem := s.readProof(p.text(), proofIdentity)
		if problem.Claim != "" || r == nil {
			t.Errorf("a proof %s: %+v", name, problem)
		}
	}
	for name, tt := range badProofs {
		t.Run(name, func(t *testing.T) {
			p := goodProof()
			tt.change(&p)
			if r, problem := s.readProof(p.text(), proofIdentity); problem.Claim != tt.claim || r != nil {
				t.Errorf("the problem is %+v, want one of %s", problem, tt.claim)
			}
		})
	}
	for _, text := range []string{"", "%%%", "AAAA",
		base64.RawURLEncoding.EncodeToString([]byte("POST / HTTP/1.1\r\n\r\n"))} {
		if r, problem := s.readProof(text, proofIdentity); problem.Claim == "" || r != nil {
			t.Errorf("%q was read as a proof", text)
		}
	}
}

// FuzzReadProof checks that every accepted proof is bound to this service and to the identity.
func FuzzReadProof(f *testing.F) {
	for _, tt := range badProofs {
		p := goodProof()
		tt.change(&p)
		b, err := base64.RawURLEncoding.DecodeString(p.text())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	s := proofReader()
	f.Fuzz(func(t *testing.T, request []byte) {
		r, problem := s.readProof(base64.RawURLEncoding.EncodeToString(request), proofIdentity)
		if problem.Claim != "" {
			if r != nil {
				t.Error("a problem and a proof")
			}
			return
		}
		if r.Method != http.MethodPost || r.Host != awsHost || !bytes.Contains(request, []byte("GetCallerIdentity")) ||
			!bytes.Contains(request, []byte(proofIdentity)) || !bytes.Contains(request, []byte("auth.example")) {
			t.Errorf("read as a proof: %q", request)
		}
	})
}

// FuzzParseRefresh checks that every text that is accepted as a refresh token is the same token after it is encoded and
// parsed again.
func FuzzParseRefresh(f *testing.F) {
	text, err := refreshText(newSecret(), proofTime)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add("e30=")
	f.Fuzz(func(t *testing.T, text string) {
		r, ok := parseRefresh(text)
		if !ok {
			return
		}
		again, err := refreshText(r.Secret, time.Unix(r.Expiry, 0))
		if err != nil {
			t.Fatal(err)
		}
		if same, ok := parseRefresh(again); (!ok || same != r) && len(again) <= maxRefresh {
			t.Errorf("%+v was written and read as %+v", r, same)
		}
	})
}
