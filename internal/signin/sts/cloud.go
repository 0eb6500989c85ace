package sts

import (
	"cmp"
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

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// Clouds configures the endpoints at which the clouds exchange our tokens for
// theirs, and the names that they have for us. The zero value has the public
// endpoints of the clouds.
type Clouds struct {
	Google string // address of the token service
	Azure  string // address of the login service
	Name   string // name of our role in AWS, and of our pool and provider in Google projects; "" is holdfast
}

const (
	googleEndpoint = "https://sts.googleapis.com/v1/token"
	azureEndpoint  = "https://login.microsoftonline.com"
	nameInClouds   = "holdfast"
	cloudTokenLife = 5 * time.Minute
	maxCloudReply  = 64 << 10 // largest response in bytes
)

// TryAccount reports whether we have access to the cloud account that is associated
// with a group. It exchanges a token of the group for a token of the cloud, which it
// discards. It checks no permission: its caller must do that.
func (s *Service) TryAccount(
	ctx context.Context, a resource.AccountAssociation, cloud resource.ProviderType,
) (resource.Readiness, error) {
	switch cloud {
	case resource.ProviderAmazon:
		return s.tryAmazon(ctx, a)
	case resource.ProviderGoogle:
		return s.tryGoogle(ctx, a)
	}
	names := slices.Sorted(maps.Keys(a.Azure.ClientIDs))
	if len(names) == 0 {
		return resource.Readiness{
			Reason: "NOT_CONFIGURED", Message: "the association has a tenant but no application",
		}, nil
	}
	for _, name := range names {
		r, err := s.tryAzure(ctx, a, name)
		if err != nil || !r.Ready {
			return r, err
		}
	}
	return ready("the tenant issued a token to each application"), nil
}

func ready(message string) resource.Readiness {
	return resource.Readiness{Ready: true, Message: message}
}

// cloudToken returns a token whose subject is the group.
func (s *Service) cloudToken(ctx context.Context, group resource.UID, audience string) (string, error) {
	return s.issuer.Mint(ctx, token.Claims{Subject: group, Audience: []string{audience}, Life: cloudTokenLife})
}

func (s *Service) tryAmazon(ctx context.Context, a resource.AccountAssociation) (resource.Readiness, error) {
	raw, err := s.cloudToken(ctx, a.UID, awsHost)
	if err != nil {
		return resource.Readiness{}, err
	}
	role := "arn:aws:iam::" + a.Amazon.Account + ":role/" + cmp.Or(s.cfg.Clouds.Name, nameInClouds)
	status, body, away := s.postForm(ctx, cmp.Or(s.cfg.AWS.Endpoint, awsEndpoint), url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"}, "RoleArn": {role},
		"RoleSessionName": {nameInClouds}, "DurationSeconds": {"900"}, "WebIdentityToken": {raw},
	})
	var refusal struct {
		Code    string `xml:"Error>Code"`
		Message string `xml:"Error>Message"`
	}
	switch {
	case away != nil:
		return *away, nil
	case status == http.StatusOK:
		return ready("AWS issued credentials of " + role), nil
	case xml.Unmarshal(body, &refusal) == nil && refusal.Code != "":
		return refusedBy("AWS", refusal.Code, refusal.Message, role), nil
	}
	return refusedBy("AWS", fmt.Sprint(status), "", role), nil
}

func (s *Service) tryGoogle(ctx context.Context, a resource.AccountAssociation) (resource.Readiness, error) {
	pool := cmp.Or(s.cfg.Clouds.Name, nameInClouds)
	// The number can be any text. It is escaped so that it stays one segment.
	provider := "//iam.googleapis.com/projects/" + url.PathEscape(a.Google.ProjectNumber) +
		"/locations/global/workloadIdentityPools/" + pool + "/providers/" + pool
	raw, err := s.cloudToken(ctx, a.UID, "https:"+provider)
	if err != nil {
		return resource.Readiness{}, err
	}
	status, body, away := s.postForm(ctx, cmp.Or(s.cfg.Clouds.Google, googleEndpoint), url.Values{
		"grant_type":           {"urn:ietf:params:oauth:grant-type:token-exchange"},
		"audience":             {provider},
		"subject_token":        {raw},
		"subject_token_type":   {"urn:ietf:params:oauth:token-type:jwt"},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
		"scope":                {"https://www.googleapis.com/auth/cloud-platform"},
	})
	return oauthOutcome("Google", provider, status, body, away), nil
}

func (s *Service) tryAzure(
	ctx context.Context, a resource.AccountAssociation, name string,
) (resource.Readiness, error) {
	raw, err := s.cloudToken(ctx, a.UID, "api://AzureADTokenExchange")
	if err != nil {
		return resource.Readiness{}, err
	}
	base := strings.TrimSuffix(cmp.Or(s.cfg.Clouds.Azure, azureEndpoint), "/")
	status, body, away := s.postForm(ctx, base+"/"+a.Azure.TenantID+"/oauth2/v2.0/token", url.Values{
		"grant_type": {"client_credentials"}, "client_id": {a.Azure.ClientIDs[name]}, "client_assertion": {raw},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
		"scope":                 {"https://management.azure.com/.default"},
	})
	return oauthOutcome("Azure", "application "+name, status, body, away), nil
}

// oauthOutcome interprets the response of an OAuth token endpoint.
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
		return ready(cloud + " issued a token of " + what)
	case err != nil || answer.Error == "":
		return refusedBy(cloud, fmt.Sprint(status), "", what)
	}
	return refusedBy(cloud, answer.Error, answer.Description, what)
}

func refusedBy(cloud, code, message, what string) resource.Readiness {
	text := cloud + " issued nothing for " + what + ": " + truncated(code)
	if message != "" {
		text += ": " + truncated(message)
	}
	return resource.Readiness{Reason: "REFUSED", Message: strings.Join(strings.Fields(text), " ")}
}

// postForm posts a form to a cloud. It returns the response, or a Readiness with the
// reason why there is none.
func (s *Service) postForm(
	ctx context.Context, endpoint string, form url.Values,
) (status int, body []byte, away *resource.Readiness) {
	unreachable := func(err error) *resource.Readiness {
		return &resource.Readiness{
			Reason: "UNREACHABLE", Message: "the cloud cannot be reached: " + outbound.Reason(err),
		}
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
