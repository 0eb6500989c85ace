package client

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// An awsKey is a key for signing requests to AWS.
type awsKey struct{ id, secret, session string }

const (
	awsHost = "sts.amazonaws.com"
	awsBody = "Action=GetCallerIdentity&Version=2011-06-15"
	awsTime = "20060102T150405Z"
)

// awsProof returns a signed request to AWS that asks for the identity of its sender. The
// server forwards the request. Two headers bind it to the issuer and the identity, so
// nobody can use it for anything else.
func awsProof(_ context.Context, getenv func(string) string, p purpose) (string, error) {
	key := awsKey{getenv("AWS_ACCESS_KEY_ID"), getenv("AWS_SECRET_ACCESS_KEY"), getenv("AWS_SESSION_TOKEN")}
	if key.secret == "" {
		return "", errors.New("AWS_SECRET_ACCESS_KEY is not set")
	}
	headers := map[string]string{
		"host": awsHost, "content-type": "application/x-www-form-urlencoded",
		"holdfast-audience": p.audience, "holdfast-identity": p.identity,
	}
	if key.session != "" {
		headers["x-amz-security-token"] = key.session
	}
	key.sign("us-east-1", "sts", headers, awsBody, time.Now())
	var b strings.Builder
	b.WriteString("POST / HTTP/1.1\r\n")
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if strings.ContainsAny(headers[name], "\r\n") {
			return "", errors.New("the AWS credentials contain a line break")
		}
		fmt.Fprintf(&b, "%s: %s\r\n", name, headers[name])
	}
	fmt.Fprintf(&b, "content-length: %d\r\n\r\n%s", len(awsBody), awsBody)
	return base64.RawURLEncoding.EncodeToString([]byte(b.String())), nil
}

// sign adds the headers that sign a POST to / (AWS Signature Version 4).
func (k awsKey) sign(region, service string, headers map[string]string, body string, now time.Time) {
	stamp := now.UTC().Format(awsTime)
	headers["x-amz-date"] = stamp
	var canonical strings.Builder
	names := slices.Sorted(maps.Keys(headers))
	for _, name := range names {
		canonical.WriteString(name + ":" + strings.TrimSpace(headers[name]) + "\n")
	}
	signed := strings.Join(names, ";")
	request := "POST\n/\n\n" + canonical.String() + "\n" + signed + "\n" + hexDigest(body)
	scope := stamp[:8] + "/" + region + "/" + service + "/aws4_request"
	mac := []byte("AWS4" + k.secret)
	for part := range strings.SplitSeq(scope, "/") {
		mac = keyed(mac, part)
	}
	signature := hex.EncodeToString(keyed(mac, "AWS4-HMAC-SHA256\n"+stamp+"\n"+scope+"\n"+hexDigest(request)))
	headers["authorization"] = "AWS4-HMAC-SHA256 Credential=" + k.id + "/" + scope + ", SignedHeaders=" + signed +
		", Signature=" + signature
}

func hexDigest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func keyed(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
