from .advice.record import to_dict as to_dict
from .advice.record import to_json as to_json
from .advice.text import to_text as to_text
from .advice.web_page import to_html as to_html
from .check.record import check_to_dict as check_to_dict
from .check.record import check_to_json as check_to_json
from .check.text import check_to_text as check_to_text
