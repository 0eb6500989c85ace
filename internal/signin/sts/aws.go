package sts

import (
	"bufio"
	"bytes"
	"cmp"
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

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
)

// AWS configures how callers of an AWS account prove their identity. A caller signs
// a GetCallerIdentity request and presents it as the credential, the proof. Two
// signed headers bind the proof to this service and to the identity. The service
// sends the request to AWS.
type AWS struct {
	Endpoint string       // address of the AWS token service; "" is its global address
	Headers  []string     // allowed prefixes of the two headers, for example Holdfast
	Client   *http.Client // nil is outbound.Client
}

const (
	awsHost     = "sts.amazonaws.com"
	awsEndpoint = "https://" + awsHost + "/"
	awsOldest   = 15 * time.Minute // maximum age of a proof
	awsAhead    = 5 * time.Minute  // how far the clock of the caller may be ahead
	awsDate     = "20060102T150405Z"
	maxAWS      = 8 << 10  // largest proof in bytes
	maxAWSReply = 64 << 10 // largest response in bytes
)

// An awsRefusal is the error for a refused proof, with the checks for the recorded
// denial.
type awsRefusal struct {
	error
	checks   []resource.Check
	verified bool
}

func (r *awsRefusal) Unwrap() error { return r.error }

// acceptAWS returns the signer of a proof according to AWS, if it matches p.
func (s *Service) acceptAWS(ctx context.Context, p *principal, bearer string) (*resource.Upstream, error) {
	proof, failed := s.readProof(bearer, p.identity.UID)
	if failed.Claim != "" {
		return nil, &awsRefusal{refused(failed.Claim, failed.Cause), []resource.Check{failed}, false}
	}
	caller, err := s.callAWS(ctx, proof)
	if err != nil {
		return nil, err
	}
	c := resource.Credential{Claim: caller.claim}
	if claim := p.matcher.Mismatch(c); claim != "" {
		return nil, &awsRefusal{s.denied(ctx, claim), p.matcher.Compare(c, true), true}
	}
	return &resource.Upstream{Issuer: "https://" + awsHost, Subject: caller.ARN}, nil
}

// readProof parses a proof, and checks that it is a recent GetCallerIdentity request for this service and this
// identity. If it is not, readProof returns the check that failed.
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
		len(form) != 2 || len(form["Version"]) != 1 ||
		len(form["Action"]) != 1 || form.Get("Action") != "GetCallerIdentity" {
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
	if failed := s.checkBinding(r, identity); failed.Claim != "" {
		return nil, failed
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return r, resource.Check{}
}

// awsSignature matches the only accepted form of the Authorization header. If the
// header could list the signed headers twice, AWS and this service might read
// different lists.
var awsSignature = regexp.MustCompile(
	`^AWS4-HMAC-SHA256 Credential=[A-Za-z0-9/_-]+, ?SignedHeaders=([a-z0-9;-]+), ?Signature=[0-9a-f]{64}$`)

// checkBinding checks that the signed headers bind a proof to this service, to the identity and to the current time. It
// returns the check that failed, or a zero Check if all succeeded.
func (s *Service) checkBinding(r *http.Request, identity resource.UID) resource.Check {
	prefix := ""
	for _, h := range s.cfg.AWS.Headers {
		if r.Header.Get(h+"-Audience") != "" {
			prefix = h
		}
	}
	if prefix == "" {
		return resource.Check{Claim: "aud", Cause: "the header with the audience of the proof is missing"}
	}
	m := awsSignature.FindStringSubmatch(r.Header.Get("Authorization"))
	if m == nil {
		return resource.Check{Claim: "signature", Cause: "the request is not signed"}
	}
	signed := strings.Split(m[1], ";")
	lower := strings.ToLower(prefix)
	for _, name := range []string{"host", "x-amz-date", lower + "-audience", lower + "-identity"} {
		if !slices.Contains(signed, name) {
			return resource.Check{Claim: "signature", Cause: "the header " + name + " is not signed"}
		}
	}
	if aud := r.Header.Get(prefix + "-Audience"); !slices.Contains(s.audiences, aud) {
		return resource.Check{
			Claim: "aud", Expected: s.audiences[0], Received: truncated(aud), Cause: "the proof is for another service",
		}
	}
	if uid := r.Header.Get(prefix + "-Identity"); uid != string(identity) {
		return resource.Check{
			Claim: "identity", Expected: string(identity), Received: truncated(uid),
			Cause: "the proof is for another identity",
		}
	}
	date := r.Header.Get("X-Amz-Date")
	signedAt, err := time.Parse(awsDate, date)
	if asOf := s.now(); err != nil || asOf.Sub(signedAt) > awsOldest || signedAt.Sub(asOf) > awsAhead {
		return resource.Check{
			Claim: "x-amz-date", Expected: "within 15 minutes before " +
				asOf.UTC().Format(awsDate), Received: truncated(date),
			Cause: "the proof is too old, or a clock is wrong",
		}
	}
	return resource.Check{}
}

// A callerIdentity is the response to GetCallerIdentity.
type callerIdentity struct {
	Account string `xml:"Account" json:"Account"`
	ARN     string `xml:"Arn" json:"Arn"`
	UserID  string `xml:"UserId" json:"UserId"`
}

func (c callerIdentity) claim(name string) (string, bool) {
	v := map[string]string{"account": c.Account, "arn": c.ARN, "user_id": c.UserID}[name]
	return v, v != ""
}

// callAWS sends a proof to AWS and returns the response.
func (s *Service) callAWS(ctx context.Context, proof *http.Request) (callerIdentity, error) {
	unavailable := func(err error) error {
		return &fault.Error{Code: fault.Unavailable, Message: "Unavailable: AWS cannot be reached now", Cause: err}
	}
	endpoint := cmp.Or(s.cfg.AWS.Endpoint, awsEndpoint)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, proof.Body)
	if err != nil {
		return callerIdentity{}, err
	}
	r.Host, r.Header, r.ContentLength = awsHost, proof.Header.Clone(), proof.ContentLength
	r.Header.Del("Connection")
	resp, err := s.client.Do(r)
	if err != nil {
		return callerIdentity{}, unavailable(err)
	}
	defer resp.Body.Close()
	body, err := outbound.Read(resp.Body, maxAWSReply)
	switch {
	case err != nil || resp.StatusCode >= http.StatusInternalServerError:
		return callerIdentity{}, unavailable(err)
	case resp.StatusCode != http.StatusOK:
		return callerIdentity{}, &awsRefusal{refused("signature", "AWS does not accept the proof"), []resource.Check{{
			Claim: "signature", Expected: "accepted by AWS", Received: resp.Status,
			Cause: "the proof is not signed with valid credentials",
		}}, false}
	}
	caller, ok := readCaller(resp.Header.Get("Content-Type"), body)
	if !ok {
		return callerIdentity{}, fault.New(fault.Unavailable, "Unavailable: the response of AWS cannot be read")
	}
	return caller, nil
}

// readCaller parses a response of AWS. It is JSON or XML, depending on the Accept
// header of the proof.
func readCaller(contentType string, body []byte) (callerIdentity, bool) {
	var err error
	var caller callerIdentity
	if media, _, _ := mime.ParseMediaType(contentType); media == "application/json" {
		var answer struct {
			Response struct {
				Result callerIdentity `json:"GetCallerIdentityResult"`
			} `json:"GetCallerIdentityResponse"`
		}
		err = json.Unmarshal(body, &answer)
		caller = answer.Response.Result
	} else {
		var answer struct {
			XMLName xml.Name       `xml:"GetCallerIdentityResponse"`
			Result  callerIdentity `xml:"GetCallerIdentityResult"`
		}
		err = xml.Unmarshal(body, &answer)
		caller = answer.Result
	}
	return caller, err == nil && caller.Account != "" && caller.ARN != "" && caller.UserID != ""
}
