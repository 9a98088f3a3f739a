package token

// advice says what to do about an errcode of the token call (wechat.md 4.1).
func advice(code int) string {
	switch code {
	case 40001, 40125, 41004:
		return "check the app secret: it may have been reset"
	case 40002, 40013, 41002:
		return "check the appid"
	case 40164, 61004, 89506, 89507:
		return "put the address named in the message on the account's IP whitelist"
	case 89503:
		return "the account's administrator must confirm this call in WeChat"
	case 40243:
		return "the app secret is frozen: unfreeze it in the account's settings"
	case 50004, 50007:
		return "the account is blocked or closed: see its notices in WeChat"
	}
	return "see the message and the account's settings in WeChat"
}
