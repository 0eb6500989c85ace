package sts

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/outbound"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/token"
)

// Clouds is where the clouds exchange our tokens for theirs, and under which
// names they know us. The zero value has the clouds' own.
type Clouds struct {
	Google string // its token service
	Azure  string // its login service
	Role   string // of ours in AWS accounts; "" is holdfast
	Pool   string // of workload identities in Google projects, and the provider in it; "" is holdfast
}

const (
	googleEndpoint = "https://sts.googleapis.com/v1/token"
	azureEndpoint  = "https://login.microsoftonline.com"
	nameInClouds   = "holdfast"
	cloudTokenLife = 5 * time.Minute
	maxCloudReply  = 64 << 10
)

func orDefault(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// TryAccount tells whether an account that belongs to a group lets us in: it
// exchanges a token of the group's for one of the cloud's, which it then forgets.
// Whoever asks has been found to be allowed to.
func (s *Service) TryAccount(ctx context.Context, a resource.AccountAssociation, cloud resource.ProviderType) (resource.Readiness, error) {
	switch cloud {
	case resource.ProviderAmazon:
		return s.tryAmazon(ctx, a)
	case resource.ProviderGoogle:
		return s.tryGoogle(ctx, a)
	}
	names := slices.Sorted(maps.Keys(a.Azure.ClientIDs))
	if len(names) == 0 {
		return resource.Readiness{Reason: "NOT_CONFIGURED", Message: "the association has a tenant and no application in it"}, nil
	}
	for _, name := range names {
		r, err := s.tryAzure(ctx, a, name)
		if err != nil || !r.Ready {
			return r, err
		}
	}
	return ready("the tenant gave a token to each application"), nil
}

func ready(message string) resource.Readiness {
	return resource.Readiness{Ready: true, Message: message}
}

// cloudToken is a token that says that it is the group's.
func (s *Service) cloudToken(ctx context.Context, group resource.UID, audience string) (string, error) {
	return s.issuer.Mint(ctx, token.Claims{Subject: group, Audience: []string{audience}, Life: cloudTokenLife})
}

func (s *Service) tryAmazon(ctx context.Context, a resource.AccountAssociation) (resource.Readiness, error) {
	raw, err := s.cloudToken(ctx, a.UID, awsHost)
	if err != nil {
		return resource.Readiness{}, err
	}
	role := "arn:aws:iam::" + a.Amazon.Account + ":role/" + orDefault(s.cfg.Clouds.Role, nameInClouds)
	status, body, away := s.askCloud(ctx, orDefault(s.cfg.AWS.Endpoint, awsEndpoint), url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"}, "RoleArn": {role}, "RoleSessionName": {nameInClouds},
		"DurationSeconds": {"900"}, "WebIdentityToken": {raw},
	})
	var refusal struct {
		Code    string `xml:"Error>Code"`
		Message string `xml:"Error>Message"`
	}
	switch {
	case away != nil:
		return *away, nil
	case status == http.StatusOK:
		return ready("AWS gave credentials of " + role), nil
	case xml.Unmarshal(body, &refusal) == nil && refusal.Code != "":
		return refusedBy("AWS", refusal.Code, refusal.Message, role), nil
	}
	return refusedBy("AWS", fmt.Sprint(status), "", role), nil
}

func (s *Service) tryGoogle(ctx context.Context, a resource.AccountAssociation) (resource.Readiness, error) {
	pool := orDefault(s.cfg.Clouds.Pool, nameInClouds)
	place := "//iam.googleapis.com/projects/" + a.Google.ProjectNumber + "/locations/global/workloadIdentityPools/" + pool + "/providers/" + pool
	raw, err := s.cloudToken(ctx, a.UID, "https:"+place)
	if err != nil {
		return resource.Readiness{}, err
	}
	status, body, away := s.askCloud(ctx, orDefault(s.cfg.Clouds.Google, googleEndpoint), url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "audience": {place}, "subject_token": {raw},
		"subject_token_type":   {"urn:ietf:params:oauth:token-type:jwt"},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"}, "scope": {"https://www.googleapis.com/auth/cloud-platform"},
	})
	return oauthOutcome("Google", place, status, body, away), nil
}

func (s *Service) tryAzure(ctx context.Context, a resource.AccountAssociation, name string) (resource.Readiness, error) {
	raw, err := s.cloudToken(ctx, a.UID, "api://AzureADTokenExchange")
	if err != nil {
		return resource.Readiness{}, err
	}
	endpoint := strings.TrimSuffix(orDefault(s.cfg.Clouds.Azure, azureEndpoint), "/") + "/" + a.Azure.TenantID + "/oauth2/v2.0/token"
	status, body, away := s.askCloud(ctx, endpoint, url.Values{
		"grant_type": {"client_credentials"}, "client_id": {a.Azure.ClientIDs[name]}, "scope": {"https://management.azure.com/.default"},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"}, "client_assertion": {raw},
	})
	return oauthOutcome("Azure", "application "+name, status, body, away), nil
}

// oauthOutcome reads the answer of a token endpoint.
func oauthOutcome(cloud, what string, status int, body []byte, away *resource.Readiness) resource.Readiness {
	var answer struct {
		Token       string `json:"access_token"`
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	switch err := json.Unmarshal(body, &answer); {
	case away != nil:
		return *away
	case status == http.StatusOK && err == nil && answer.Token != "":
		return ready(cloud + " gave a token of " + what)
	case err != nil || answer.Error == "":
		return refusedBy(cloud, fmt.Sprint(status), "", what)
	}
	return refusedBy(cloud, answer.Error, answer.Description, what)
}

func refusedBy(cloud, code, message, what string) resource.Readiness {
	text := cloud + " gave nothing for " + what + ": " + shortened(code)
	if message != "" {
		text += ": " + shortened(message)
	}
	return resource.Readiness{Reason: "REFUSED", Message: strings.Join(strings.Fields(text), " ")}
}

// askCloud sends a form, and returns the answer or why there is none.
func (s *Service) askCloud(ctx context.Context, endpoint string, form url.Values) (status int, body []byte, away *resource.Readiness) {
	unreachable := func(err error) *resource.Readiness {
		return &resource.Readiness{Reason: "UNREACHABLE", Message: "the cloud cannot be asked: " + outbound.Reason(err)}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return 0, nil, unreachable(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := s.client.Do(r)
	if err != nil {
		return 0, nil, unreachable(err)
	}
	defer resp.Body.Close()
	if body, err = outbound.Read(resp.Body, maxCloudReply); err != nil {
		return 0, nil, unreachable(err)
	}
	return resp.StatusCode, body, nil
}
