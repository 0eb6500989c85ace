package sts

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/outbound"
	"github.com/holdfast-dev/holdfast/resource"
)

// AWS is how callers prove themselves that an AWS account knows: they sign, and
// do not send, a request for who they are, bound to us and to the identity by
// two headers. We send it.
type AWS struct {
	Endpoint string       // of its token service; "" is the global one
	Headers  []string     // the prefixes those two headers may have, such as Holdfast
	Client   *http.Client // nil is outbound's
}

const (
	awsHost     = "sts.amazonaws.com"
	awsEndpoint = "https://" + awsHost + "/"
	awsOldest   = 15 * time.Minute
	awsAhead    = 5 * time.Minute
	awsDate     = "20060102T150405Z"
	maxAWS      = 8 << 10
	maxAWSReply = 64 << 10
)

func (a AWS) client() *http.Client {
	if a.Client != nil {
		return a.Client
	}
	return outbound.Client(outbound.Config{})
}

// An awsRefusal says, for those who may know, why a proof was refused.
type awsRefusal struct {
	error
	checks   []resource.Check
	verified bool
}

func (r *awsRefusal) Unwrap() error { return r.error }

// acceptAWS returns who AWS says signed the proof, if that is whom p stands for.
func (s *Service) acceptAWS(ctx context.Context, p *party, bearer string) (*resource.Upstream, error) {
	proof, problem := s.readProof(bearer, p.identity.UID)
	if problem.Claim != "" {
		return nil, &awsRefusal{refused(problem.Claim, problem.Cause), []resource.Check{problem}, false}
	}
	who, err := s.askAWS(ctx, proof)
	if err != nil {
		return nil, err
	}
	c := resource.Credential{Claim: who.claim}
	if claim := p.matcher.Mismatch(c); claim != "" {
		return nil, &awsRefusal{s.denied(ctx, claim), p.matcher.Compare(c, true), true}
	}
	return &resource.Upstream{Issuer: "https://" + awsHost, Subject: who.ARN}, nil
}

// readProof reads a signed request, and checks that it is for us, for this
// identity, for nothing but who the caller is, and of today.
func (s *Service) readProof(bearer string, identity resource.UID) (*http.Request, resource.Check) {
	bad := func(claim, cause string) (*http.Request, resource.Check) {
		return nil, resource.Check{Claim: claim, Cause: cause}
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(bearer, "="))
	if err != nil || len(text) > maxAWS {
		return bad("proof", "is not a signed request in base64url")
	}
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
	if err != nil {
		return bad("proof", "is not a signed request in base64url")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAWS))
	form, ferr := url.ParseQuery(string(body))
	if err != nil || ferr != nil || r.Method != http.MethodPost || r.URL.Path != "/" || r.URL.RawQuery != "" ||
		len(form) != 2 || len(form["Action"]) != 1 || form.Get("Action") != "GetCallerIdentity" || len(form["Version"]) != 1 {
		return bad("proof", "must be POST / of Action=GetCallerIdentity and its Version")
	}
	if r.Host != awsHost {
		return bad("host", "must be "+awsHost)
	}
	for name, values := range r.Header {
		if len(values) != 1 {
			return bad(strings.ToLower(name), "is given more than once")
		}
	}
	if problem := s.checkBinding(r, identity); problem.Claim != "" {
		return nil, problem
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return r, resource.Check{}
}

// awsSignature is the one way that the signature of a proof is written. Whoever
// could name the signed headers twice would have us and AWS each read one.
var awsSignature = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=[A-Za-z0-9/_-]+, ?SignedHeaders=([a-z0-9;-]+), ?Signature=[0-9a-f]{64}$`)

// checkBinding checks what binds a proof to us, to the identity and to the hour,
// and that all of it is signed.
func (s *Service) checkBinding(r *http.Request, identity resource.UID) resource.Check {
	prefix := ""
	for _, h := range s.cfg.AWS.Headers {
		if r.Header.Get(h+"-Audience") != "" {
			prefix = h
		}
	}
	if prefix == "" {
		return resource.Check{Claim: "aud", Cause: "the header that says whom the proof is for is missing"}
	}
	m := awsSignature.FindStringSubmatch(r.Header.Get("Authorization"))
	if m == nil {
		return resource.Check{Claim: "signature", Cause: "the request is not signed"}
	}
	signed := strings.Split(m[1], ";")
	for _, name := range []string{"host", "x-amz-date", strings.ToLower(prefix) + "-audience", strings.ToLower(prefix) + "-identity"} {
		if !slices.Contains(signed, name) {
			return resource.Check{Claim: "signature", Cause: "the header " + name + " is not signed"}
		}
	}
	if aud := r.Header.Get(prefix + "-Audience"); !slices.Contains(s.audiences, aud) {
		return resource.Check{Claim: "aud", Expected: s.audiences[0], Received: shortened(aud), Cause: "the proof is for somebody else"}
	}
	if uid := r.Header.Get(prefix + "-Identity"); uid != string(identity) {
		return resource.Check{Claim: "identity", Expected: string(identity), Received: shortened(uid), Cause: "the proof is for another identity"}
	}
	at, err := time.Parse(awsDate, r.Header.Get("X-Amz-Date"))
	if now := s.now(); err != nil || now.Sub(at) > awsOldest || at.Sub(now) > awsAhead {
		return resource.Check{
			Claim: "x-amz-date", Expected: "within 15 minutes before " + now.UTC().Format(awsDate), Received: shortened(r.Header.Get("X-Amz-Date")),
			Cause: "the proof is too old, or a clock is wrong",
		}
	}
	return resource.Check{}
}

// A callerIdentity is whom AWS takes somebody for.
type callerIdentity struct {
	Account string `xml:"Account" json:"Account"`
	ARN     string `xml:"Arn" json:"Arn"`
	UserID  string `xml:"UserId" json:"UserId"`
}

func (c callerIdentity) claim(name string) (string, bool) {
	v := map[string]string{"account": c.Account, "arn": c.ARN, "user_id": c.UserID}[name]
	return v, v != ""
}

// askAWS sends a proof and returns the answer.
func (s *Service) askAWS(ctx context.Context, proof *http.Request) (callerIdentity, error) {
	endpoint := s.cfg.AWS.Endpoint
	if endpoint == "" {
		endpoint = awsEndpoint
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, proof.Body)
	if err != nil {
		return callerIdentity{}, err
	}
	r.Host, r.Header, r.ContentLength = awsHost, proof.Header.Clone(), proof.ContentLength
	r.Header.Del("Connection")
	resp, err := s.client.Do(r)
	if err != nil {
		return callerIdentity{}, &fault.Error{Code: fault.Unavailable, Message: "Unavailable: AWS cannot be asked now", Cause: err}
	}
	defer resp.Body.Close()
	body, err := outbound.Read(resp.Body, maxAWSReply)
	switch {
	case err != nil || resp.StatusCode >= http.StatusInternalServerError:
		return callerIdentity{}, &fault.Error{Code: fault.Unavailable, Message: "Unavailable: AWS cannot be asked now", Cause: err}
	case resp.StatusCode != http.StatusOK:
		return callerIdentity{}, &awsRefusal{refused("signature", "AWS does not accept the proof"), []resource.Check{
			{Claim: "signature", Expected: "accepted by AWS", Received: resp.Status, Cause: "the proof is not signed with credentials that are good now"},
		}, false}
	}
	who, ok := readCaller(resp.Header.Get("Content-Type"), body)
	if !ok {
		return callerIdentity{}, &fault.Error{Code: fault.Unavailable, Message: "Unavailable: AWS gave an answer that cannot be read"}
	}
	return who, nil
}

// readCaller reads an answer, which is JSON or XML as the proof asked for.
func readCaller(contentType string, body []byte) (callerIdentity, bool) {
	var err error
	var who callerIdentity
	if media, _, _ := mime.ParseMediaType(contentType); media == "application/json" {
		var answer struct {
			Response struct {
				Result callerIdentity `json:"GetCallerIdentityResult"`
			} `json:"GetCallerIdentityResponse"`
		}
		err = json.Unmarshal(body, &answer)
		who = answer.Response.Result
	} else {
		var answer struct {
			XMLName xml.Name       `xml:"GetCallerIdentityResponse"`
			Result  callerIdentity `xml:"GetCallerIdentityResult"`
		}
		err = xml.Unmarshal(body, &answer)
		who = answer.Result
	}
	return who, err == nil && who.Account != "" && who.ARN != "" && who.UserID != ""
}
