package e2e_test

import (
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// An attack is a token that must be refused, and the expected error.
type attack struct {
	token func(f *fakeIssuer) string
	code  codes.Code
	says  string // text that the error message must contain
	asks  bool   // whether the server fetches the issuer's keys
}

// attacks are tokens for an identity that trusts the subject job of an issuer if the claim env is prod. The server
// answers Unauthenticated if it cannot verify the token, and PermissionDenied if it verifies the token but the token
// does not match the identity.
var attacks = map[string]attack{
	// Attacks on the signature.
	"no algorithm":          {header(`{"alg":"none"}`, nothing), codes.Unauthenticated, `"alg"`, false},
	"no algorithm, capital": {header(`{"alg":"None","kid":"rsa"}`, nothing), codes.Unauthenticated, `"alg"`, false},
	"an empty algorithm":    {header(`{"alg":"","kid":"rsa"}`, withRSA), codes.Unauthenticated, "", false},
	"no alg at all":         {header(`{"kid":"rsa"}`, withRSA), codes.Unauthenticated, "", false},
	"two algs": {
		header(`{"alg":"none","alg":"RS256","kid":"rsa"}`, withRSA), codes.Unauthenticated, "", false,
	},
	"HS256 with the PEM": {
		header(`{"alg":"HS256","kid":"rsa"}`, macOf(publicPEM)), codes.Unauthenticated, `"alg"`, false,
	},
	"HS256 with the DER": {
		header(`{"alg":"HS256","kid":"rsa"}`, macOf(publicDER)), codes.Unauthenticated, `"alg"`, false,
	},
	"HS256 with the key set": {
		header(`{"alg":"HS256","kid":"rsa"}`, macOf(fakeKeySet)), codes.Unauthenticated, `"alg"`, false,
	},
	"the EC key as RSA":    {header(`{"alg":"RS256","kid":"ec"}`, withEC), codes.Unauthenticated, `"kid"`, true},
	"the RSA key as EC":    {header(`{"alg":"ES256","kid":"rsa"}`, withRSA), codes.Unauthenticated, `"kid"`, true},
	"another of RSA's":     {header(`{"alg":"PS256","kid":"rsa"}`, withRSA), codes.Unauthenticated, `"kid"`, true},
	"another of EC's":      {header(`{"alg":"ES384","kid":"ec"}`, withEC), codes.Unauthenticated, `"kid"`, true},
	"a signature of zeros": {header(ecHeader, zeros), codes.Unauthenticated, `"signature"`, true},
	"a signature in DER":   {header(ecHeader, inDER), codes.Unauthenticated, `"signature"`, true},
	"half a signature": {header(ecHeader, func(in []byte) []byte {
		return withEC(in)[:32]
	}), codes.Unauthenticated, `"signature"`, true},
	"no signature":           {header(rsaHeader, nothing), codes.Unauthenticated, `"signature"`, true},
	"somebody else's key":    {header(rsaHeader, withStranger), codes.Unauthenticated, `"signature"`, true},
	"no kid, stranger's key": {header(`{"alg":"RS256"}`, withStranger), codes.Unauthenticated, `"signature"`, true},
	"claims of another":      {swapped, codes.Unauthenticated, `"signature"`, true},
	"a signature in the claim": {func(f *fakeIssuer) string {
		return f.token(nil) + ".x"
	}, codes.Unauthenticated, "not a signed token", false},

	// Attacks on the location of the key.
	"kid is a path": {
		header(`{"alg":"RS256","kid":"../../../../etc/passwd"}`, withRSA), codes.Unauthenticated, `"kid"`, true,
	},
	"kid is an address": {pointing("kid", "%s/evil"), codes.Unauthenticated, `"kid"`, true},
	"kid has a quote":   {header(`{"alg":"RS256","kid":"' OR 1=1 --"}`, withRSA), codes.Unauthenticated, `"kid"`, true},
	"kid has a NUL":     {header(`{"alg":"RS256","kid":"rsa\u0000"}`, withRSA), codes.Unauthenticated, `"kid"`, true},
	"kid is long": {
		header(`{"alg":"RS256","kid":"`+strings.Repeat("x", 8000)+`"}`, withRSA), codes.Unauthenticated, `"kid"`, true,
	},
	"kid is a number":   {header(`{"alg":"RS256","kid":1}`, withRSA), codes.Unauthenticated, "", false},
	"kid in capitals":   {header(`{"alg":"RS256","kid":"RSA"}`, withRSA), codes.Unauthenticated, `"kid"`, true},
	"jku":               {pointing("jku", "%s/evil"), codes.Unauthenticated, `"jku"`, false},
	"jku of the issuer": {pointing("jku", "%s/keys"), codes.Unauthenticated, `"jku"`, false},
	"x5u":               {pointing("x5u", "%s/evil"), codes.Unauthenticated, `"x5u"`, false},
	"x5c":               {header(`{"alg":"RS256","kid":"rsa","x5c":["AAAA"]}`, withRSA), codes.Unauthenticated, "", false},
	"a key of its own":  {ownKey, codes.Unauthenticated, `"jwk"`, false},
	"an unknown crit": {
		header(`{"alg":"RS256","kid":"rsa","crit":["x"],"x":1}`, withRSA), codes.Unauthenticated, `"crit"`, false,
	},
	"claims not in base64url": {
		header(`{"alg":"RS256","kid":"rsa","b64":false,"crit":["b64"]}`, withRSA), codes.Unauthenticated, `"crit"`, false,
	},
	"the same, silently": {
		header(`{"alg":"RS256","kid":"rsa","b64":false}`, withRSA), codes.Unauthenticated, `"b64"`, false,
	},

	// Attacks on the audience.
	"another audience":       {claim("aud", "https://elsewhere.example"), codes.PermissionDenied, `"aud"`, true},
	"no audience":            {claim("aud", nil), codes.Unauthenticated, `"aud"`, false},
	"an empty audience":      {claim("aud", ""), codes.PermissionDenied, `"aud"`, true},
	"no audience of several": {claim("aud", []string{}), codes.PermissionDenied, `"aud"`, true},
	"us and somebody else": {
		claim("aud", []string{"http://issuer.test", "https://elsewhere.example"}), codes.PermissionDenied, `"aud"`, true,
	},
	"a number for audience":  {claim("aud", 1), codes.Unauthenticated, `"aud"`, false},
	"a number among several": {claim("aud", []any{"http://issuer.test", 1}), codes.Unauthenticated, `"aud"`, false},
	"an audience object": {
		claim("aud", map[string]string{"http://issuer.test": ""}), codes.Unauthenticated, `"aud"`, false,
	},
	"audience with more":    {claim("aud", "http://issuer.test.evil.example"), codes.PermissionDenied, `"aud"`, true},
	"audience with a query": {claim("aud", "http://issuer.test?"), codes.PermissionDenied, `"aud"`, true},
	"audience of a path":    {claim("aud", "http://issuer.test/sts"), codes.PermissionDenied, `"aud"`, true},
	"audience in capitals":  {claim("aud", "HTTP://ISSUER.TEST"), codes.PermissionDenied, `"aud"`, true},
	"audiences in one": {
		claim("aud", "http://issuer.test,https://elsewhere.example"), codes.PermissionDenied, `"aud"`, true,
	},

	// Attacks on the issuer.
	"issuer with more":       {issuer("%s.evil.example"), codes.PermissionDenied, `"iss"`, false},
	"issuer with a slash":    {issuer("%s/"), codes.PermissionDenied, `"iss"`, false},
	"issuer with a path":     {issuer("%s/x/.."), codes.PermissionDenied, `"iss"`, false},
	"issuer with a user":     {issuer("http://127.0.0.1@%s"), codes.PermissionDenied, `"iss"`, false},
	"issuer with a query":    {issuer("%s?"), codes.PermissionDenied, `"iss"`, false},
	"issuer with a fragment": {issuer("%s#"), codes.PermissionDenied, `"iss"`, false},
	"issuer in capitals": {func(f *fakeIssuer) string {
		return f.token(map[string]any{"iss": strings.ToUpper(f.url)})
	}, codes.PermissionDenied, `"iss"`, false},
	"issuer with a space": {issuer(" %s"), codes.PermissionDenied, `"iss"`, false},
	"issuer with a NUL":   {issuer("%s\x00"), codes.PermissionDenied, `"iss"`, false},
	"issuer over TLS": {func(f *fakeIssuer) string {
		return f.token(map[string]any{"iss": strings.Replace(f.url, "http:", "https:", 1)})
	}, codes.PermissionDenied, `"iss"`, false},
	"the cloud's metadata": {claim("iss", "http://169.254.169.254"), codes.PermissionDenied, `"iss"`, false},
	"no issuer":            {claim("iss", nil), codes.Unauthenticated, `"iss"`, false},
	"an empty issuer":      {claim("iss", ""), codes.Unauthenticated, `"iss"`, false},
	"several issuers": {func(f *fakeIssuer) string {
		return f.token(map[string]any{"iss": []string{f.url}})
	}, codes.Unauthenticated, `"iss"`, false},
	"we as the issuer":        {claim("iss", "http://issuer.test"), codes.PermissionDenied, `"iss"`, false},
	"an issuer that is a map": {claim("iss", map[string]any{}), codes.Unauthenticated, `"iss"`, false},

	// Attacks on the validity period.
	"expired":                 {claim("exp", time.Now().Add(-time.Second).Unix()), codes.Unauthenticated, `"exp"`, true},
	"expired long ago":        {claim("exp", 1), codes.Unauthenticated, `"exp"`, true},
	"no end":                  {claim("exp", nil), codes.Unauthenticated, `"exp"`, false},
	"an end in words":         {claim("exp", "9999999999"), codes.Unauthenticated, `"exp"`, false},
	"an end beyond time":      {claim("exp", 1e30), codes.Unauthenticated, `"exp"`, false},
	"an end before time":      {claim("exp", -1), codes.Unauthenticated, `"exp"`, false},
	"a null for an end":       {payload(`"exp":null`), codes.Unauthenticated, `"exp"`, false},
	"a list of ends":          {claim("exp", []int64{time.Now().Unix() + 60}), codes.Unauthenticated, `"exp"`, false},
	"from tomorrow":           {claim("nbf", time.Now().Add(5*time.Minute).Unix()), codes.Unauthenticated, `"nbf"`, true},
	"made tomorrow":           {claim("iat", time.Now().Add(5*time.Minute).Unix()), codes.Unauthenticated, `"iat"`, true},
	"not before in words":     {claim("nbf", "now"), codes.Unauthenticated, `"nbf"`, false},
	"made in words":           {claim("iat", true), codes.Unauthenticated, `"iat"`, false},
	"an end that is infinite": {payload(`"exp":1e999`), codes.Unauthenticated, "", false},

	// Attacks on the subject and other claims.
	"another subject":        {claim("sub", "other"), codes.PermissionDenied, `"sub"`, true},
	"subject in capitals":    {claim("sub", "JOB"), codes.PermissionDenied, `"sub"`, true},
	"subject with more":      {claim("sub", "job\n"), codes.PermissionDenied, `"sub"`, true},
	"subject with less":      {claim("sub", "jo"), codes.PermissionDenied, `"sub"`, true},
	"subject with a NUL":     {claim("sub", "job\x00"), codes.PermissionDenied, `"sub"`, true},
	"subject of look-alikes": {claim("sub", "jоb"), codes.PermissionDenied, `"sub"`, true},
	"no subject":             {claim("sub", nil), codes.Unauthenticated, `"sub"`, false},
	"an empty subject":       {claim("sub", ""), codes.Unauthenticated, `"sub"`, false},
	"several subjects":       {claim("sub", []string{"job"}), codes.Unauthenticated, `"sub"`, false},
	"a number for a subject": {claim("sub", 1), codes.Unauthenticated, `"sub"`, false},
	"two subjects":           {payload(`"sub":"other"`), codes.Unauthenticated, "each name once", false},
	"two issuers": {
		payload(`"iss":"https://elsewhere.example"`), codes.Unauthenticated, "each name once", false,
	},
	"the same subject twice": {payload(`"sub":"job"`), codes.Unauthenticated, "each name once", false},
	"an escaped second":      {payload(`"s\u0075b":"other"`), codes.Unauthenticated, "each name once", false},
	"subject in another case": {func(f *fakeIssuer) string {
		return f.token(map[string]any{"sub": nil, "Sub": "job"})
	}, codes.Unauthenticated, `"sub"`, false},
	"no env":          {claim("env", nil), codes.PermissionDenied, `"env"`, true},
	"another env":     {claim("env", "test"), codes.PermissionDenied, `"env"`, true},
	"env in capitals": {claim("env", "PROD"), codes.PermissionDenied, `"env"`, true},
	"several envs":    {claim("env", []string{"prod"}), codes.PermissionDenied, `"env"`, true},
	"an env object":   {claim("env", map[string]string{"prod": "prod"}), codes.PermissionDenied, `"env"`, true},
	"env in another case": {func(f *fakeIssuer) string {
		return f.token(map[string]any{"ENV": "prod"})
	}, codes.PermissionDenied, `"env"`, true},

	// Attacks on the format.
	"nothing":  {text("x"), codes.Unauthenticated, "", false},
	"two dots": {text(".."), codes.Unauthenticated, "", false},
	"a nested token": {func(f *fakeIssuer) string {
		return jws(`{"alg":"RS256","kid":"rsa","cty":"JWT"}`, f.token(nil), withRSA)
	}, codes.Unauthenticated, `"cty"`, false},
	"a nested token, silent": {func(f *fakeIssuer) string {
		return jws(rsaHeader, f.token(nil), withRSA)
	}, codes.Unauthenticated, "", false},
	"an encrypted token": {
		text(strings.Repeat("e30.", 4) + "e30"), codes.Unauthenticated, "not a signed token", false,
	},
	"JSON serialization":     {asJSON, codes.Unauthenticated, "", false},
	"a huge token":           {claim("x", strings.Repeat("x", 17<<10)), codes.Unauthenticated, "too long", false},
	"claims that are a list": {whole(`["job"]`), codes.Unauthenticated, "one JSON object", false},
	"claims that are null":   {whole(`null`), codes.Unauthenticated, "one JSON object", false},
	"claims and more": {func(f *fakeIssuer) string {
		return jws(rsaHeader, f.claims(prod)+"{}", withRSA)
	}, codes.Unauthenticated, "", false},
	"claims not in UTF-8": {payload("\"x\":\"\xff\""), codes.Unauthenticated, "UTF-8", false},
	"a padded token": {func(f *fakeIssuer) string {
		return f.token(prod) + "=="
	}, codes.Unauthenticated, "", false},
	"a token with loose bits": {loose, codes.Unauthenticated, "cannot be read", false},
	"a token in the old form": {func(f *fakeIssuer) string {
		return strings.Replace(f.token(prod), ".", "=.", 1)
	}, codes.Unauthenticated, "", false},
}

var prod = map[string]any{"env": "prod"}

// header returns a function that creates a token with this header and signature.
func header(h string, sign signer) func(*fakeIssuer) string {
	return func(f *fakeIssuer) string { return jws(h, f.claims(prod), sign) }
}

// pointing returns a function that creates a token whose header contains an address of the issuer.
func pointing(name, format string) func(*fakeIssuer) string {
	return func(f *fakeIssuer) string {
		address := fmt.Sprintf(format, f.url)
		if name == "kid" {
			return jws(fmt.Sprintf(`{"alg":"RS256","kid":%q}`, address), f.claims(prod), withRSA)
		}
		return jws(fmt.Sprintf(`{"alg":"RS256","kid":"rsa",%q:%q}`, name, address), f.claims(prod), withRSA)
	}
}

// claim returns a function that creates a token with one changed claim.
func claim(name string, value any) func(*fakeIssuer) string {
	return func(f *fakeIssuer) string {
		change := map[string]any{"env": "prod"}
		change[name] = value
		return f.token(change)
	}
}

// issuer returns a function that creates a token whose issuer differs slightly from the trusted issuer.
func issuer(format string) func(*fakeIssuer) string {
	return func(f *fakeIssuer) string {
		return f.token(map[string]any{"env": "prod", "iss": fmt.Sprintf(format, f.url)})
	}
}

// payload returns a function that creates a token with more appended to its claims as raw JSON. If more begins with
// an exp claim, the original exp claim is removed.
func payload(more string) func(*fakeIssuer) string {
	return func(f *fakeIssuer) string {
		change := map[string]any{"env": "prod"}
		if strings.HasPrefix(more, `"exp"`) {
			change["exp"] = nil
		}
		return jws(rsaHeader, strings.TrimSuffix(f.claims(change), "}")+","+more+"}", withRSA)
	}
}

// whole returns a function that creates a token with exactly these claims.
func whole(claims string) func(*fakeIssuer) string {
	return func(*fakeIssuer) string { return jws(rsaHeader, claims, withRSA) }
}

func text(s string) func(*fakeIssuer) string { return func(*fakeIssuer) string { return s } }

func nothing([]byte) []byte { return nil }

func zeros([]byte) []byte { return make([]byte, 64) }

func inDER(in []byte) []byte {
	_, e := fakeKeys()
	sum := sha256.Sum256(in)
	sig, err := ecdsa.SignASN1(rand.Reader, e, sum[:])
	if err != nil {
		panic(err)
	}
	return sig
}

func macOf(secret func() []byte) signer {
	return func(in []byte) []byte {
		h := hmac.New(sha256.New, secret())
		h.Write(in)
		return h.Sum(nil)
	}
}

func publicDER() []byte {
	r, _ := fakeKeys()
	der, err := x509.MarshalPKIXPublicKey(&r.PublicKey)
	if err != nil {
		panic(err)
	}
	return der
}

func publicPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: publicDER()})
}

func withStranger(in []byte) []byte {
	stranger, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(in)
	sig, err := rsa.SignPKCS1v15(nil, stranger, 5, sum[:]) // 5 is crypto.SHA256
	if err != nil {
		panic(err)
	}
	return sig
}

// swapped returns a token with the signature of another token.
func swapped(f *fakeIssuer) string {
	good := strings.Split(f.token(map[string]any{"sub": "other", "env": "prod"}), ".")
	want := strings.Split(f.token(prod), ".")
	return good[0] + "." + want[1] + "." + good[2]
}

// loose returns a valid token whose last letter is changed so that it still decodes to the same signature. Of the six
// bits of the last letter, four are padding.
func loose(f *fakeIssuer) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	good := f.token(prod)
	last := strings.IndexByte(letters, good[len(good)-1])
	return good[:len(good)-1] + letters[last+1:last+2]
}

// ownKey returns a token whose header contains the key that signed it.
func ownKey(f *fakeIssuer) string {
	r, _ := fakeKeys()
	n := base64.RawURLEncoding.EncodeToString(r.N.Bytes())
	return jws(`{"alg":"RS256","jwk":{"kty":"RSA","n":"`+n+`","e":"AQAB"}}`, f.claims(prod), withRSA)
}

func asJSON(f *fakeIssuer) string {
	p := strings.Split(f.token(prod), ".")
	return fmt.Sprintf(`{"payload":%q,"protected":%q,"signature":%q}`, p[1], p[0], p[2])
}

var requestOf = regexp.MustCompile(` \(request [^)]*\)$`)

// TestAttacks sends every attack over both protocols, and checks that it is refused. Each attack has its own issuer,
// which counts the requests for its keys.
func TestAttacks(t *testing.T) {
	w := serve(t, storetest.SQLite(t), server.Config{Now: ticking()}, nil)
	prepare := func(t *testing.T) (*fakeIssuer, string) {
		f := newFakeIssuer(t, w)
		return f, w.workload(t, f.url, func(m *iampb.Identity_ClaimMatch) { m.Claims = map[string]string{"env": "prod"} })
	}
	t.Run("a good token", func(t *testing.T) {
		f, identity := prepare(t)
		// A deeply nested claim is accepted, because it is harmless.
		deep := payload(`"x":` + strings.Repeat("[", 4000) + strings.Repeat("]", 4000))
		for _, good := range []string{
			f.token(prod), jws(ecHeader, f.claims(prod), withEC), jws(`{"alg":"ES256"}`, f.claims(prod), withEC), deep(f),
		} {
			w.exchange(t, good, identity)
		}
		if n := f.asked.Load(); n != 2 {
			t.Errorf("%d requests to the issuer for four tokens, want two, both for the first", n)
		}
	})
	for name, a := range attacks {
		t.Run(name, func(t *testing.T) {
			f, identity := prepare(t)
			bearer := a.token(f)
			_, st := w.exchangeHTTP(t, bearer, w.wish(identity))
			if st.Code() != a.code || !strings.Contains(st.Message(), a.says) {
				t.Errorf("HTTP: %v, want %v with %s in the message", st, a.code, a.says)
			}
			_, again := w.exchangeGRPC(t, bearer, w.wish(identity))
			if again.Code() != st.Code() ||
				requestOf.ReplaceAllString(again.Message(), "") != requestOf.ReplaceAllString(st.Message(), "") {
				t.Errorf("gRPC: %v, HTTP: %v", again, st)
			}
			if n := f.asked.Load(); (n == 2) != a.asks || n != 0 && n != 2 {
				t.Errorf("%d requests to the issuer, want 0 or 2", n)
			}
			if n := f.strayed.Load(); n != 0 {
				t.Errorf("%d requests went to the address in the token", n)
			}
			for _, secret := range []string{f.url, "prod", "elsewhere"} {
				if strings.Contains(st.Message(), secret) {
					t.Errorf("the message reveals %q: %s", secret, st.Message())
				}
			}
		})
	}
}
