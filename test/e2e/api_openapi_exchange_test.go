package e2e_test

import "net/url"

// exchangeExamples returns example calls for the token service and its explanations.
func exchangeExamples(w *world, x things) map[string][]example {
	aud := "aud=" + url.QueryEscape(w.BaseURL)
	exchange := []example{
		{query: aud}, {query: aud + "&cap=groups.list&scopes=" + x.folder + "&scope=" + x.org},
		{query: "aud=https://elsewhere.example", fails: true},
		{query: aud, as: "nonsense", fails: true},
		{query: aud + "&identity=" + x.identity, fails: true},
	}
	return map[string][]example{
		"SecurityTokenService_Exchange":   exchange,
		"SecurityTokenService_Exchange_1": exchange,
		"SecurityTokenService_ExchangeRefreshToken": {
			{query: aud, as: w.RefreshToken}, {query: aud, as: w.RefreshToken, fails: true}, {fails: true},
		},
		"FederationService_ExplainToken": {
			{body: `{"token":"` + w.Token + `"}`},
			{body: `{"token":"` + w.Token + `","identityUid":"` + x.identity + `"}`},
			{body: `{}`, fails: true},
		},
		"FederationService_ListExchanges": {{query: "identity_uid=" + x.identity}, {fails: true}},
		"FederationService_ListDenials":   {{query: "identity_uid=" + x.identity}, {fails: true}},
		"FederationService_ListIssuers": {
			{}, {query: "descendants_of=" + x.folder}, {query: "descendants_of=x", fails: true},
		},
	}
}
