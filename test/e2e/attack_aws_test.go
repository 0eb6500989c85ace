package e2e_test

import (
	"encoding/base64"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// deployRole creates an identity that everybody with the AWS role deploy can assume. It returns the UID of the
// identity.
func (w *world) deployRole(t *testing.T) string {
	t.Helper()
	return w.identify(t,
		&iampb.Identity{Name: "aws", Relationship: &iampb.Identity_AwsIdentity{AwsIdentity: &iampb.Identity_AWSIdentity{
			AwsAccount: "123456789012",
			AwsArn:     &iampb.Identity_AWSIdentity_ArnPattern{ArnPattern: `arn:aws:sts::123456789012:assumed-role/deploy/.*`},
		}}})
}

// presented exchanges a bearer token over both protocols and returns the status. It fails the test if the two results
// differ.
func (w *world) presented(t *testing.T, bearer, identity string) *status.Status {
	t.Helper()
	_, http := w.exchangeHTTP(t, bearer, w.wish(identity))
	_, grpc := w.exchangeGRPC(t, bearer, w.wish(identity))
	if http.Code() != grpc.Code() {
		t.Errorf("HTTP: %v, gRPC: %v", http, grpc)
	}
	return grpc
}

// TestAttackReplayedProof replays a copied proof of an AWS role. The proof must be valid only for the identity that
// it names, only at this server, and only for 15 minutes. After that, the server must refuse it without a request to
// AWS.
func TestAttackReplayedProof(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, url string) {
		aws := &awsService{answer: asXML}
		endpoint := httptest.NewServer(aws)
		t.Cleanup(endpoint.Close)
		clock := newClock()
		w := serve(t, url, server.Config{AWSEndpoint: endpoint.URL, Now: clock.now}, nil)
		// Each of these identities accepts the AWS role.
		identity, twin, gone := w.deployRole(t), w.deployRole(t), w.deployRole(t)
		bearer := w.awsProof(identity, awsSecret, nil, nil)
		left := w.awsProof(gone, awsSecret, nil, nil)
		if st := w.presented(t, left, gone); st.Code() != codes.OK {
			t.Fatalf("a good proof: %v", st)
		}
		if _, st := w.overGRPC(t, w.Token, &iampb.DeleteIdentityRequest{Uid: gone}); st.Code() != codes.OK {
			t.Fatal(st)
		}
		for name, tt := range map[string]struct {
			bearer, identity string
			code             codes.Code
		}{
			// Accepted, because a client may have lost the first answer.
			"again":                           {bearer, identity, codes.OK},
			"for an identity of the same":     {bearer, twin, codes.Unauthenticated},
			"for its organization":            {bearer, string(w.Organization), codes.PermissionDenied},
			"for an identity that is deleted": {left, gone, codes.PermissionDenied},
			"with another identity, unsigned": {replaceInProof(bearer, identity, twin), twin, codes.Unauthenticated},
			"for another identity after all": {
				replaceInProof(bearer, "holdfast-identity: "+identity, "holdfast-identity: "+twin), twin, codes.Unauthenticated,
			},
			"with a date of later": {
				replaceInProof(bearer, "x-amz-date:", "date: "+time.Now().UTC().Format(awsStamp)+"\r\nx-amz-date:"),
				twin, codes.Unauthenticated,
			},
			"in two parts": {
				replaceInProof(bearer, "Content-Length: 43", "Transfer-Encoding: chunked"), identity, codes.Unauthenticated,
			},
		} {
			t.Run(name, func(t *testing.T) {
				if st := w.presented(t, tt.bearer, tt.identity); st.Code() != tt.code {
					t.Errorf("%v, want %v", st, tt.code)
				}
			})
		}
		clock.advance(16 * time.Minute)
		asked := aws.asked.Load()
		st := w.presented(t, bearer, identity)
		if st.Code() != codes.Unauthenticated || !strings.Contains(st.Message(), "x-amz-date") {
			t.Errorf("after 16 minutes: %v", st)
		}
		if n := aws.asked.Load() - asked; n != 0 {
			t.Errorf("%d requests to AWS about an expired proof", n)
		}
	})
}

// replaceInProof returns a proof with a part of its text replaced.
func replaceInProof(bearer, old, replacement string) string {
	text, err := base64.URLEncoding.DecodeString(bearer)
	if err != nil {
		panic(err)
	}
	return base64.URLEncoding.EncodeToString([]byte(strings.Replace(string(text), old, replacement, 1)))
}

// TestAttackProofForAnotherServer sends proofs that were made for servers with similar addresses. AWS would confirm
// each of these proofs, but this server must refuse them.
func TestAttackProofForAnotherServer(t *testing.T) {
	storetest.StoryURL(t, func(t *testing.T, url string) {
		aws := &awsService{answer: asXML}
		endpoint := httptest.NewServer(aws)
		t.Cleanup(endpoint.Close)
		w := serve(t, url, server.Config{AWSEndpoint: endpoint.URL, Now: ticking()}, nil)
		identity := w.deployRole(t)
		for audience, code := range map[string]codes.Code{
			w.AuthURL:                                codes.OK,
			w.AuthURL + "/":                          codes.OK,
			strings.TrimPrefix(w.AuthURL, "http://"): codes.OK,
			"https://issuer.test":                    codes.Unauthenticated,
			"http://issuer.test.evil.example":        codes.Unauthenticated,
			"http://issuer.test@evil.example":        codes.Unauthenticated,
			"http://issuer.test:8443":                codes.Unauthenticated,
			"http://issuer.test//":                   codes.Unauthenticated,
			"HTTP://ISSUER.TEST":                     codes.Unauthenticated,
			"evil.example":                           codes.Unauthenticated,
			w.AuthURL + ", https://evil.example":     codes.Unauthenticated,
			w.BaseURL:                                codes.Unauthenticated,
		} {
			bearer := w.awsProof(identity, awsSecret, func(h map[string]string) { h["holdfast-audience"] = audience }, nil)
			asked := aws.asked.Load()
			if st := w.presented(t, bearer, identity); st.Code() != code {
				t.Errorf("for %s: %v, want %v", audience, st, code)
			}
			if n := aws.asked.Load() - asked; (n > 0) != (code == codes.OK) {
				t.Errorf("for %s: %d requests to AWS", audience, n)
			}
		}
	})
}
