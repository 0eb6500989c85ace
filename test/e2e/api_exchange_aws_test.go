package e2e_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

const (
	awsDay    = "20060102"
	awsStamp  = "20060102T150405Z"
	awsSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	awsBody   = "Action=GetCallerIdentity&Version=2011-06-15"
)

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// awsSign returns the AWS version 4 signature for a POST request to / with these headers. The names of the headers
// are in lower case.
func awsSign(secret, stamp string, headers map[string]string, signed []string, body string) string {
	canonical := "POST\n/\n\n"
	for _, name := range signed {
		canonical += name + ":" + strings.TrimSpace(headers[name]) + "\n"
	}
	canonical += "\n" + strings.Join(signed, ";") + "\n" + hexSum([]byte(body))
	scope := stamp[:8] + "/us-east-1/sts/aws4_request"
	key := mac(mac(mac(mac([]byte("AWS4"+secret), stamp[:8]), "us-east-1"), "sts"), "aws4_request")
	return hex.EncodeToString(mac(key, "AWS4-HMAC-SHA256\n"+stamp+"\n"+scope+"\n"+hexSum([]byte(canonical))))
}

// An awsService is a fake AWS: it returns who signed a request, and counts the requests.
type awsService struct {
	asked  atomic.Int32
	answer func(w http.ResponseWriter) // writes the response to a valid request
}

func (a *awsService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.asked.Add(1)
	body, _ := io.ReadAll(r.Body)
	_, rest, _ := strings.Cut(r.Header.Get("Authorization"), "SignedHeaders=")
	names, signature, _ := strings.Cut(rest, ", Signature=")
	headers := map[string]string{"host": r.Host}
	for name := range r.Header {
		headers[strings.ToLower(name)] = r.Header.Get(name)
	}
	want := awsSign(awsSecret, r.Header.Get("X-Amz-Date"), headers, strings.Split(names, ";"), string(body))
	if r.Method != http.MethodPost || r.URL.String() != "/" || signature != want {
		http.Error(w, "<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code></Error></ErrorResponse>",
			http.StatusForbidden)
		return
	}
	a.answer(w)
}

// awsProof returns a bearer token that proves an AWS identity to w. change may edit the headers before they are
// signed, and tamper may change the signed request.
func (w *world) awsProof(identity, secret string, change func(map[string]string), tamper func(string) string) string {
	stamp := time.Now().UTC().Format(awsStamp)
	headers := map[string]string{
		"host": "sts.amazonaws.com", "x-amz-date": stamp, "holdfast-audience": w.AuthURL, "holdfast-identity": identity,
		"content-type": "application/x-www-form-urlencoded; charset=utf-8",
	}
	if change != nil {
		change(headers)
	}
	var signed []string
	for name := range headers {
		signed = append(signed, name)
	}
	slices.Sort(signed)
	var b strings.Builder
	b.WriteString("POST / HTTP/1.1\r\n")
	for _, name := range signed {
		fmt.Fprintf(&b, "%s: %s\r\n", name, headers[name])
	}
	fmt.Fprintf(&b,
		"Content-Length: %d\r\nAuthorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/%s/us-east-1/sts/aws4_request, "+
			"SignedHeaders=%s, Signature=%s\r\n\r\n%s",
		len(awsBody), stamp[:len(awsDay)], strings.Join(signed, ";"), awsSign(secret,
			headers["x-amz-date"], headers, signed, awsBody), awsBody)
	text := b.String()
	if tamper != nil {
		text = tamper(text)
	}
	return base64.URLEncoding.EncodeToString([]byte(text))
}

func asXML(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/xml")
	fmt.Fprint(w, `<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>
		<Arn>arn:aws:sts::123456789012:assumed-role/deploy/i-1</Arn>`+
		`<UserId>AROAEXAMPLE:i-1</UserId><Account>123456789012</Account>
		</GetCallerIdentityResult><ResponseMetadata><RequestId>x</RequestId></ResponseMetadata></GetCallerIdentityResponse>`)
}

func asAWSJSON(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"GetCallerIdentityResponse":{"GetCallerIdentityResult":{"Account":"123456789012",
		"Arn":"arn:aws:sts::123456789012:assumed-role/deploy/i-1","UserId":"AROAEXAMPLE:i-1"},`+
		`"ResponseMetadata":{"RequestId":"x"}}}`)
}

// TestAWS checks that a proof that AWS confirms can be exchanged, and that a proof that was tampered with is refused.
func TestAWS(t *testing.T) {
	aws := &awsService{answer: asXML}
	endpoint := httptest.NewServer(aws)
	t.Cleanup(endpoint.Close)
	w := serve(t, storetest.SQLite(t), server.Config{AWSEndpoint: endpoint.URL}, nil)
	role := func(i *iampb.Identity_AWSIdentity) string {
		return w.identify(t, &iampb.Identity{Name: "aws", Relationship: &iampb.Identity_AwsIdentity{AwsIdentity: i}})
	}
	identity := role(&iampb.Identity_AWSIdentity{
		AwsAccount: "123456789012",
		AwsArn:     &iampb.Identity_AWSIdentity_ArnPattern{ArnPattern: `arn:aws:sts::123456789012:assumed-role/deploy/.*`},
	})
	other := role(&iampb.Identity_AWSIdentity{
		AwsAccount: "123456789012",
		AwsArn:     &iampb.Identity_AWSIdentity_ArnPattern{ArnPattern: `arn:aws:sts::123456789012:assumed-role/admin/.*`},
	})
	account := role(&iampb.Identity_AWSIdentity{
		AwsAccount: "210987654321",
		AwsArn:     &iampb.Identity_AWSIdentity_ArnPattern{ArnPattern: `arn:aws:sts::123456789012:assumed-role/deploy/.*`},
	})
	for name, answer := range map[string]func(http.ResponseWriter){"XML": asXML, "JSON": asAWSJSON} {
		aws.answer = answer
		claims := said(t, w.exchange(t, w.awsProof(identity, awsSecret, nil, nil), identity))
		act, _ := claims["act"].(map[string]any)
		if act["sub"] != "arn:aws:sts::123456789012:assumed-role/deploy/i-1" || claims["sub"] != identity {
			t.Errorf("%s: token claims %v", name, claims)
		}
	}
	for name, tt := range map[string]struct {
		identity, bearer string
		code             codes.Code
		says             string
		asks             bool
	}{
		"another role":    {other, w.awsProof(other, awsSecret, nil, nil), codes.PermissionDenied, `"arn"`, true},
		"another account": {account, w.awsProof(account, awsSecret, nil, nil), codes.PermissionDenied, `"account"`, true},
		"another secret":  {identity, w.awsProof(identity, "x", nil, nil), codes.Unauthenticated, `"signature"`, true},
		"a changed header that is signed": {identity, w.awsProof(identity, awsSecret, nil, func(s string) string {
			return strings.Replace(s, "charset=utf-8", "charset=ascii", 1)
		}), codes.Unauthenticated, `"signature"`, true},
		"a proof for another identity": {
			identity, w.awsProof(other, awsSecret, nil, nil), codes.Unauthenticated, `"identity"`, false,
		},
		"a proof for somebody else": {
			identity,
			w.awsProof(identity, awsSecret, func(h map[string]string) {
				h["holdfast-audience"] = "https://elsewhere.example"
			}, nil),
			codes.Unauthenticated, `"aud"`, false},
		"a proof of yesterday": {identity, w.awsProof(identity, awsSecret, func(h map[string]string) {
			h["x-amz-date"] = time.Now().Add(-24 * time.Hour).UTC().Format(awsStamp)
		}, nil), codes.Unauthenticated, `"x-amz-date"`, false},
		"a proof of tomorrow": {identity, w.awsProof(identity, awsSecret, func(h map[string]string) {
			h["x-amz-date"] = time.Now().Add(24 * time.Hour).UTC().Format(awsStamp)
		}, nil), codes.Unauthenticated, `"x-amz-date"`, false},
		"an identity that is not signed": {identity, w.awsProof(identity, awsSecret, nil, func(s string) string {
			return strings.Replace(s, "holdfast-identity;", "", 1)
		}), codes.Unauthenticated, `"signature"`, false},
		"another host": {identity, w.awsProof(identity, awsSecret, func(h map[string]string) {
			h["host"] = "sts.evil.example"
		}, nil), codes.Unauthenticated, `"host"`, false},
		"another action": {identity, w.awsProof(identity, awsSecret, nil, func(s string) string {
			return strings.Replace(s, "GetCallerIdentity", "GetFederationTokn", 1)
		}), codes.Unauthenticated, `"proof"`, false},
		"a header twice": {identity, w.awsProof(identity, awsSecret, nil, func(s string) string {
			return strings.Replace(s, "holdfast-identity:", "Holdfast-Identity: x\r\nholdfast-identity:", 1)
		}), codes.Unauthenticated, `"holdfast-identity"`, false},
		"a token":           {identity, w.Token, codes.Unauthenticated, `"proof"`, false},
		"nothing of a kind": {identity, "x", codes.Unauthenticated, `"proof"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := aws.asked.Load()
			_, st := w.exchangeHTTP(t, tt.bearer, w.wish(tt.identity))
			if st.Code() != tt.code || !strings.Contains(st.Message(), tt.says) {
				t.Errorf("%v, want %v with %s in the message", st, tt.code, tt.says)
			}
			if asked := aws.asked.Load() > before; asked != tt.asks {
				t.Errorf("request to AWS = %v", asked)
			}
			if _, again := w.exchangeGRPC(t, tt.bearer, w.wish(tt.identity)); again.Code() != tt.code {
				t.Errorf("gRPC: %v", again)
			}
		})
	}
	for name, answer := range map[string]func(http.ResponseWriter){
		"a page":      func(w http.ResponseWriter) { fmt.Fprint(w, "<html></html>") },
		"nothing":     func(http.ResponseWriter) {},
		"an outage":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		"without end": func(w http.ResponseWriter) { fmt.Fprint(w, strings.Repeat("x", 1<<20)) },
		"half of it": func(w http.ResponseWriter) {
			fmt.Fprint(w,
				`<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>a</Arn></GetCallerIdentityResult>`+
					`</GetCallerIdentityResponse>`)
		},
	} {
		aws.answer = answer
		_, st := w.exchangeHTTP(t, w.awsProof(identity, awsSecret, nil, nil), w.wish(identity))
		if st.Code() != codes.Unavailable {
			t.Errorf("AWS returns %s: %v", name, st)
		}
	}
	aws.answer = func(w http.ResponseWriter) {
		http.Redirect(w, &http.Request{}, "http://127.0.0.1:1/", http.StatusFound)
	}
	if _, st := w.exchangeHTTP(t, w.awsProof(identity, awsSecret, nil, nil), w.wish(identity)); st == nil {
		t.Error("the server accepted a redirect as an answer")
	}
}
