package wechatsim

import (
	"fmt"
	"math/rand/v2"
)

// Errcodes that the simulator gives by itself. Faults can give any other.
const (
	errSystem            = -1
	errInvalidCredential = 40001
	errGrantType         = 40002
	errInvalidOpenID     = 40003
	errInvalidMediaID    = 40007
	errInvalidMsgType    = 40008
	errInvalidAppID      = 40013
	errInvalidToken      = 40014
	errEscapes           = 40033
	errTemplateID        = 40037
	errURLSize           = 40039
	errInvalidURL        = 40066
	errInvalidSecret     = 40125
	errNotWhitelisted    = 40164
	errMiniPath          = 40165
	errMiniAppID         = 40166
	errNoCallbackURL     = 40201
	errMissingToken      = 41001
	errMissingAppID      = 41002
	errMissingSecret     = 41004
	errTokenExpired      = 42001
	errRequireGet        = 43001
	errRequirePost       = 43002
	errRequireSubscribe  = 43004
	errSubscriptionGone  = 43101
	errEmptyBody         = 44002
	errEmptyNews         = 44003
	errEmptyText         = 44004
	errContentSize       = 45002
	errArticleCount      = 45008
	errDailyQuota        = 45009
	errMinuteQuota       = 45011
	errOutOfWindow       = 45015
	errCountUsedUp       = 45047
	errTypingNoExchange  = 45080
	errTypingAlready     = 45081
	errTypingCommand     = 45072
	errDataFormat        = 47001
	errArgument          = 47003
	errUnauthorizedAPI   = 48001
	errUserRefuses       = 48002
	errNoClearsLeft      = 48006
	errCgiPath           = 76021
	errSnsPath           = 76022
)

// errTexts are the texts that go with codes; WeChat promises none of them.
var errTexts = map[int]string{
	errSystem:            "system error",
	errInvalidCredential: "invalid credential, access_token is invalid or not latest",
	errGrantType:         "invalid grant_type",
	errInvalidOpenID:     "invalid openid",
	errInvalidMediaID:    "invalid media_id",
	errInvalidMsgType:    "invalid message type",
	errInvalidAppID:      "invalid appid",
	errInvalidToken:      "invalid access_token",
	errEscapes:           "invalid charset. please check your request, if include \\uxxxx will create fail!",
	errTemplateID:        "invalid template_id",
	errURLSize:           "invalid url size",
	errInvalidURL:        "invalid url",
	errInvalidSecret:     "invalid appsecret",
	errNotWhitelisted:    "", // the detail says it all
	errMiniPath:          "invalid weapp pagepath",
	errMiniAppID:         "invalid weapp appid",
	errNoCallbackURL:     "not set callback url",
	errMissingToken:      "access_token missing",
	errMissingAppID:      "appid missing",
	errMissingSecret:     "appsecret missing",
	errTokenExpired:      "access_token expired",
	errRequireGet:        "require GET method",
	errRequirePost:       "require POST method",
	errRequireSubscribe:  "require subscribe",
	errSubscriptionGone:  "user refuse to accept the msg",
	errEmptyBody:         "empty post data",
	errEmptyNews:         "empty news data",
	errEmptyText:         "empty content",
	errContentSize:       "content size out of limit",
	errArticleCount:      "article size out of limit",
	errDailyQuota:        "reach max api daily quota limit",
	errMinuteQuota:       "api minute-quota reach limit  mustslower  retry next minute",
	errOutOfWindow:       "response out of time limit or subscription is canceled",
	errCountUsedUp:       "out of response count limit",
	errTypingNoExchange:  "can not use typing, no message exchange in the last 30 seconds",
	errTypingAlready:     "already in typing status",
	errTypingCommand:     "invalid command",
	44007:                "repeated msg id",
	47002:                "data format error, \\uxxxx is not supported",
	errDataFormat:        "data format error",
	errArgument:          "argument invalid!",
	errUnauthorizedAPI:   "api unauthorized",
	errUserRefuses:       "user block receive message",
	errNoClearsLeft:      "forbid to clear quota because of reaching the limit",
	errCgiPath:           "cgi_path not found, please check",
	errSnsPath:           "could not use this cgi_path, no permission",
	43116:                "template is restricted",
	48004:                "api forbidden for irregularities, view detail on mp.weixin.qq.com",
	50002:                "user limited",
	50005:                "user is unsubscribed",
	61007:                "api is unauthorized to component",
}

// apiError is a refusal: HTTP status 200 and a code in the body.
type apiError struct {
	code   int
	detail string // goes after the text, as WeChat names a field
}

func refusal(code int) *apiError { return &apiError{code: code} }

func argument(format string, args ...any) *apiError {
	return &apiError{errArgument, " " + fmt.Sprintf(format, args...)}
}

// errorBody is the shape of every refusal.
type errorBody struct {
	Errcode int    `json:"errcode"`
	Errmsg  string `json:"errmsg"`
}

func (e *apiError) body() errorBody {
	msg, known := errTexts[e.code]
	if !known {
		msg = "error"
	}
	return errorBody{e.code, msg + e.detail + " rid: " + newRID()}
}

func newRID() string {
	return fmt.Sprintf("%08x-%08x-%08x", rand.Uint32(), rand.Uint32(), rand.Uint32())
}
